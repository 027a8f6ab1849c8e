"""A policy as an ONNX graph, from observations and actions as the environment has them."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.agent.greedy import Choice
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.spaces import ACTION_MASK, RawSpace, has_masks
from border_cli.errors import ConfigError, reason_of
from border_cli.export.form import PolicyForm
from border_cli.nn.features import TensorObs

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
        self._choice = Choice(form.greedy, form.spec.action, torch, torch.from_numpy)
        self._twin, self._form, raw = form.twin, form.twin_form, form.spec.raw
        assert raw is not None
        self.spaces, self._action = raw.observation.parts, raw.action
        self._masked = has_masks(form.spec.observation)
        for name, numbers in form.twin_form.items():
            self.register_buffer(name, torch.tensor(numbers))

    def forward(self, observations: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The parts of N observations [N, …] -> actions [N, …], and what chose them."""
        named = zip(self.spaces.items(), observations, strict=True)
        rows = {key: _counted(space, each) for (key, space), each in named}
        mask = rows.pop(ACTION_MASK).bool() if self._masked else None
        obs: TensorObs = rows
        if len(rows) == 1 and (self._masked or "" in rows):
            (obs,) = rows.values()
        values = self._choice.values(self._outputs(self.features(obs)))
        action: Tensor = self._choice.actions(values, mask).reshape(-1, *self._action.shape)
        action = action + torch.from_numpy(self._action.start)
        return action.to(getattr(torch, self._action.dtype)), values

    def _outputs(self, features: Any) -> Tensor:
        """As the twins in numpy compute them. [N, outputs]"""
        network: Any = self.network
        outputs: Tensor
        if "fractions" in self._form:
            outputs = network(features, self.fractions[None]).mean(1)
        elif self._twin != "NumpyNetwork":
            outputs = network(features)
        else:  # not all there is to a forward pass: that of some policies has a tanh in it
            outputs = network.mlp(network.torso(features))
        if "shares" in self._form:
            outputs = outputs.reshape(outputs.shape[0], -1, len(self.shares)) @ self.shares
        return outputs


def _counted(space: RawSpace, values: Tensor) -> Tensor:
    """Integers counted from 0, real numbers in float32: the rows of `core.raw_values.Values`."""
    if space.kind == "Box":
        return values.to(getattr(torch, space.carried.name))
    counted = values.to(torch.int64) - torch.from_numpy(space.start.astype(np.int64))
    return counted if space.kind == "Discrete" else counted.flatten(1)


def write_onnx(agent: TorchAgent, form: PolicyForm, path: Path) -> None:
    """Writes the graph; raises ConfigError where torch cannot export a user's network."""
    policy = RawPolicy(agent, form).eval().requires_grad_(False)
    example = []
    for space in policy.spaces.values():
        value = np.where(np.isfinite(space.low), space.low, 0).astype(space.dtype)
        example.append(torch.tensor(np.stack([value] * TRIED)))
    batch = torch.export.Dim("N", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of packages that it misses
    try:
        with warnings.catch_warnings(action="ignore"):  # of what it will change one day
            program = torch.onnx.export(
                policy,
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=[key or OBSERVATION for key in policy.spaces],
                output_names=[ACTION, VALUES],
                dynamic_shapes=([{0: batch} for _ in example],),
                verbose=False,
            )
    except Exception as error:  # torch's own are of many kinds
        raise ConfigError(
            f"agent.network={form.architecture.kind} cannot be exported to ONNX by torch "
            f"{torch.__version__}: {reason_of(error)}. onnx=false leaves that file out"
        ) from error
    assert program is not None
    program.save(path)
