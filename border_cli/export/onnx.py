"""A policy as an ONNX graph, from observations to actions of the environment."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.agent.greedy import ActionSelector
from border_cli.agent.learning_agent import LearningAgent
from border_cli.core.spaces import ACTION_MASK, RawSpace, has_masks
from border_cli.errors import ConfigError, reason_of
from border_cli.export.form import PolicyForm
from border_cli.nn.features import TensorObs

OPSET = 18
OBSERVATION, ACTION, VALUES = "observation", "action", "values"  # names in the graph
TRIED = 2  # batch size of the traced example; torch would treat a batch size of 1 as constant


class RawPolicy(nn.Module):
    """A deterministic policy without gradients, from raw observations to raw actions."""

    fractions: Tensor  # [K]
    shares: Tensor  # [K]

    def __init__(self, agent: LearningAgent, form: PolicyForm) -> None:
        super().__init__()
        self.features = agent.acting_parts["features"]
        self.network = agent.acting_parts["network"]
        self._choice = ActionSelector(form.greedy, form.spec.action, torch, torch.from_numpy)
        self._twin, self._form, raw = form.twin, form.twin_form, form.spec.raw
        assert raw is not None
        self.spaces, self._action = raw.observation.parts, raw.action
        self._masked = has_masks(form.spec.observation)
        for name, numbers in form.twin_form.items():
            self.register_buffer(name, torch.tensor(numbers))

    def forward(self, observations: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Maps the parts of N observations [N, …] to actions [N, …] and the values behind them."""
        parts = zip(self.spaces.items(), observations, strict=True)
        rows = {key: _as_float_or_index(space, part) for (key, space), part in parts}
        mask = rows.pop(ACTION_MASK).bool() if self._masked else None
        obs: TensorObs = rows
        if len(rows) == 1 and (self._masked or "" in rows):
            (obs,) = rows.values()
        values = self._choice.values(self._outputs(self.features(obs)))
        action: Tensor = self._choice.actions(values, mask).reshape(-1, *self._action.shape)
        action = action + torch.from_numpy(self._action.start)
        action = action.to(getattr(torch, self._action.dtype))
        if self._action.dtype == "float64":  # as in `batch_of`: rounding may have crossed a bound
            low, high = (torch.tensor(bound) for bound in (self._action.low, self._action.high))
            action = torch.clamp(action, low, high)
        return action, values

    def _outputs(self, features: Any) -> Tensor:
        """Computes the outputs in the same way as the numpy networks in `TWINS`. [N, outputs]"""
        network: Any = self.network
        outputs: Tensor
        if "fractions" in self._form:
            outputs = network(features, self.fractions[None]).mean(1)
        elif self._twin != "NumpyNetwork":
            outputs = network(features)
        else:  # not `forward`, which in some policies applies a tanh
            outputs = network.mlp(network.torso(features))
        if "shares" in self._form:
            outputs = outputs.reshape(outputs.shape[0], -1, len(self.shares)) @ self.shares
        return outputs


def _as_float_or_index(space: RawSpace, values: Tensor) -> Tensor:
    """Converts values as a `ValueConverter` does: integers start at 0, floats are float32."""
    if space.kind == "Box":
        return values.to(getattr(torch, space.row_dtype.name))
    indices = values.to(torch.int64) - torch.from_numpy(space.start.astype(np.int64))
    return indices if space.kind == "Discrete" else indices.flatten(1)


def write_onnx(agent: LearningAgent, form: PolicyForm, path: Path) -> None:
    """Writes the graph; raises ConfigError if torch cannot export a user's network."""
    policy = RawPolicy(agent, form).eval().requires_grad_(False)
    if taken := sorted({ACTION, VALUES} & policy.spaces.keys()):
        raise ConfigError(
            "an ONNX graph cannot have inputs with the names of its outputs, and the observation "
            f"has the part {' and '.join(taken)}. Set onnx=false to export without that file"
        )
    example = []
    for space in policy.spaces.values():
        value = np.where(np.isfinite(space.low), space.low, 0).astype(space.dtype)
        example.append(torch.tensor(np.stack([value] * TRIED)))
    batch = torch.export.Dim("N", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about missing packages
    try:
        with warnings.catch_warnings(action="ignore"):  # about future changes
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
    except Exception as error:  # torch raises various errors
        raise ConfigError(
            f"agent.network={form.architecture.kind} cannot be exported to ONNX by torch "
            f"{torch.__version__}: {reason_of(error)}. Set onnx=false to export without that file"
        ) from error
    assert program is not None
    program.save(path)
