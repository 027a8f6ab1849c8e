"""A policy as an ONNX graph, from observations and actions as the environment has them.

onnx and its exporter are imported by the function that writes the file.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli import __version__
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.spaces import (
    ACTION_MASK,
    RawDict,
    RawSpace,
    has_masks,
)
from border_cli.errors import ConfigError, MissingPackage, reason_of
from border_cli.export.choice import GreedyChoice
from border_cli.export.form import PolicyForm
from border_cli.nn.features import TensorObs
from border_cli.run.exported import EXTRA

OPSET = 18
OBSERVATION, ACTION, VALUES = "observation", "action", "values"  # names in the graph
TRIED = 2  # rows of the example that is traced: of one, torch would take it for a constant


class RawPolicy(nn.Module):
    """A policy between raw observations and raw actions; nothing in it draws or learns."""

    fractions: Tensor  # [K]
    shares: Tensor  # [K]

    def __init__(self, agent: TorchAgent, form: PolicyForm) -> None:
        super().__init__()
        self.features = agent.acting_modules["features"]
        self.network = agent.acting_modules["network"]
        self._choice = GreedyChoice(form, torch, torch.from_numpy)
        self._twin, self._form, raw = form.twin, form.twin_form, form.spec.raw
        assert raw is not None
        self._spaces, self._action = _parts(raw.observation), raw.action
        self._masked = has_masks(form.spec.observation)
        for name in ("shares", "fractions"):
            if name in form.twin_form:
                self.register_buffer(name, torch.tensor(form.twin_form[name]))

    def forward(self, observations: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The parts of N observations [N, …] -> actions [N, …], and what chose them."""
        named = zip(self._spaces.items(), observations, strict=True)
        rows = {key: _counted(space, each) for (key, space), each in named}
        mask = rows.pop(ACTION_MASK).bool() if self._masked else None
        obs: TensorObs = rows
        if len(rows) == 1 and (self._masked or "" in rows):
            (obs,) = rows.values()
        values = self._choice.values(self._outputs(self.features(obs)))
        action: Tensor = self._choice.actions(values, mask).reshape(-1, *self._action.shape)
        start = self._action.start
        if np.any(start):
            action = action + torch.from_numpy(np.asarray(start))
        return action.to(_torch_dtype(self._action.dtype)), values

    def _outputs(self, features: Any) -> Tensor:
        """As the twins in numpy compute them. [N, outputs]"""
        outputs: Tensor
        if "fractions" in self._form:
            outputs = self.network(features, self.fractions[None]).mean(1)
            return outputs
        if self._twin != "dense":
            outputs = self.network(features)
            return outputs
        # Not all there is to a forward pass: that of some policies has a tanh in it.
        network: Any = self.network
        outputs = network.mlp(network.torso(features))
        if "shares" in self._form:
            shares = len(self._form["shares"])
            outputs = outputs.reshape(outputs.shape[0], -1, shares) @ self.shares
        return outputs


def _parts(space: RawSpace | RawDict) -> Mapping[str, RawSpace]:
    """By their names; "" is an observation by itself."""
    return space.parts if isinstance(space, RawDict) else {"": space}


def _counted(space: RawSpace, values: Tensor) -> Tensor:
    """Integers counted from 0, real numbers in float32: the rows of `core.raw_values.Values`."""
    if space.kind == "Box":
        return values.to(_torch_dtype(space.carried.name))
    counted = values.to(torch.int64) - torch.from_numpy(np.asarray(space.start, np.int64))
    return counted if space.kind == "Discrete" else counted.flatten(1)


def _example(space: RawSpace) -> Any:
    """A value of the space."""
    return np.where(np.isfinite(space.low), space.low, 0).astype(space.dtype)


def _torch_dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def refuse_missing() -> None:
    """Raises MissingPackage where a graph can neither be written nor verified."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingPackage("policy.onnx (onnx=false leaves it out)", EXTRA) from error


def write_onnx(agent: TorchAgent, form: PolicyForm, path: Path) -> None:
    """Writes the graph; raises ConfigError where torch cannot export a user's network."""
    import onnx

    policy = RawPolicy(agent, form).eval().requires_grad_(False)
    spaces = policy._spaces
    example = [
        torch.from_numpy(np.broadcast_to(_example(space), (TRIED, *space.shape)).copy())
        for space in spaces.values()
    ]
    names = [key or OBSERVATION for key in spaces]
    batch = torch.export.Dim("N", min=1)
    try:
        with quiet():
            program = torch.onnx.export(
                policy,
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=names,
                output_names=[ACTION, VALUES],
                dynamic_shapes=([{0: batch} for _ in example],),
            )
    except Exception as error:  # torch's own are of many kinds
        raise ConfigError(
            f"agent.network={form.architecture.kind} cannot be exported to ONNX by torch "
            f"{torch.__version__}: {reason_of(error)}. onnx=false leaves that file out"
        ) from error
    assert program is not None
    model = program.model_proto
    about = {"border_cli": __version__, "agent": form.agent, "env": form.spec.id}
    onnx.helper.set_model_props(model, about)
    path.write_bytes(model.SerializeToString())


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block torch's exporter tells neither its steps nor what it will change one day."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
