"""The action spaces that agents take, and the refusal of others."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import (
    BoxSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
)
from border_cli.errors import ConfigError
from border_cli.registry import AGENTS


def name_of(space: LeafSpace) -> str:
    """`Box(-1, 1, (3,), float32)`, `Discrete(2)` or `MultiDiscrete([2, 3])`."""
    match space:
        case BoxSpace(shape=shape, dtype=dtype, low=low, high=high):
            bounds = f"{low.min():g}, {high.max():g}, " if low.size else ""
            return f"Box({bounds}{shape}, {dtype})"
        case DiscreteSpace(n=n):
            return f"Discrete({n})"
        case MultiDiscreteSpace(nvec=nvec):
            return f"MultiDiscrete({list(nvec)})"


def num_discrete_actions(spec: EnvSpec, agent: str) -> int:
    """The number of actions; refuses an environment without Discrete actions."""
    if not isinstance(spec.action, DiscreteSpace):
        raise ConfigError(
            f"agent={agent} needs a Discrete action space; "
            f"env.id={spec.id} has {name_of(spec.action)}{_remedy(spec.action)}"
        )
    return spec.action.n


@dataclass(frozen=True, slots=True)
class ActionBounds:
    """Between the environment's own actions and numbers from -1 to 1, with which agents compute.

    Densities, entropies and noise are those of the numbers: what the environment's units would add
    to a log-density is constant.
    """

    space: BoxSpace
    middle: NDArray[np.float32]  # [A]
    half: NDArray[np.float32]  # [A]

    @property
    def size(self) -> int:
        """A: numbers per action."""
        return len(self.middle)

    def to_env(self, action: NDArray[np.float32]) -> NDArray[Any]:
        """From -1 … 1 to the environment's units, never beyond its bounds. [N, A] -> [N, …]"""
        shape = (len(action), *self.space.shape)
        scaled: NDArray[np.float32] = (self.middle + self.half * action).reshape(shape)
        np.clip(scaled, self.space.low, self.space.high, out=scaled)
        return scaled


def action_bounds(space: LeafSpace) -> ActionBounds | None:
    """The bounds of a Box of real numbers, if they are finite; None of all else."""
    if not isinstance(space, BoxSpace) or space.dtype != "float32":
        return None
    low = space.low.reshape(prod(space.shape)).astype(np.float64)
    high = space.high.reshape(prod(space.shape)).astype(np.float64)
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        return None
    return ActionBounds(
        space=space,
        middle=((low + high) / 2).astype(np.float32),
        half=((high - low) / 2).astype(np.float32),
    )


def bounded_actions(spec: EnvSpec, agent: str, *, also: str = "") -> ActionBounds:
    """The bounds of continuous actions; refuses an environment that has none.

    `also` names in the refusal what else the agent takes, such as "a Discrete or ".
    """
    bounds = action_bounds(spec.action)
    if bounds is None:
        raise ConfigError(
            f"agent={agent} needs {also}a Box action space of real numbers with finite bounds; "
            f"env.id={spec.id} has {name_of(spec.action)}{_remedy(spec.action)}"
        )
    return bounds


def action_outputs(spec: EnvSpec, agent: str) -> int:
    """One number per Discrete action, or per dimension of a Box; refuses what is neither."""
    if isinstance(spec.action, DiscreteSpace):
        return spec.action.n
    return bounded_actions(spec, agent, also="a Discrete or ").size


def _remedy(space: LeafSpace) -> str:
    """The advice where an agent does not take an action space."""
    match space:
        case DiscreteSpace():
            return f". Agents for Discrete actions: {_agents_for('Discrete')}"
        case MultiDiscreteSpace():
            return ". Only agent=random takes MultiDiscrete actions"
        case BoxSpace() if action_bounds(space) is not None:
            return f". Agents for Box actions: {_agents_for('Box')}"
        case BoxSpace(dtype=dtype) if not np.issubdtype(dtype, np.floating):
            return (
                ". For integers, 'env.wrappers=[{DiscretizeAction: {bins: N}}]' makes the actions "
                f"Discrete, for {_agents_for('Discrete')}"
            )
        case _:
            return (
                ". Give each action finite bounds, low below high, in the environment or by a "
                "TransformAction wrapper there. RescaleAction cannot rescale infinite bounds, and "
                "ClipAction removes bounds: leave it out, agents never exceed them"
            )


def _agents_for(actions: str) -> str:
    found = [each for each in AGENTS if actions in each.config_type.actions]
    return ", ".join(sorted(name for each in found for name in (each.name, *each.presets)))
