"""Action spaces supported by agents, and the errors raised for unsupported ones."""

from __future__ import annotations

from collections.abc import Callable
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

ANY_CHOICE = "a Discrete, MultiDiscrete, MultiBinary or "  # spaces some agents accept besides Box


def format_space(space: LeafSpace) -> str:
    """Formats a space as `Box(-1, 1, (3,), float32)`, `Discrete(2)` or `MultiDiscrete([2, 3])`."""
    match space:
        case BoxSpace(shape=shape, dtype=dtype, low=low, high=high):
            bounds = f"{low.min():g}, {high.max():g}, " if low.size else ""
            return f"Box({bounds}{shape}, {dtype})"
        case DiscreteSpace(n=n):
            return f"Discrete({n})"
        case MultiDiscreteSpace(nvec=nvec):
            return f"MultiDiscrete({list(nvec)})"


def components_of(space: LeafSpace) -> tuple[int, ...] | None:
    """Returns the number of choices per component of an action, or None for a Box.

    A Discrete space has a single component.
    """
    match space:
        case DiscreteSpace(n=n):
            return (n,)
        case MultiDiscreteSpace(nvec=nvec):
            return nvec
        case _:
            return None


def discrete_components(spec: EnvSpec, agent: str) -> tuple[int, ...]:
    """Returns the number of choices per component; raises ConfigError for continuous actions."""
    nvec = components_of(spec.action)
    if nvec is None:
        raise ConfigError(
            f"agent={agent} needs a Discrete, MultiDiscrete or MultiBinary action space; "
            f"env.id={spec.id} has {format_space(spec.action)}{_suggest_remedy(spec.action)}"
        )
    return nvec


class DiscreteActions:
    """The actions of a Discrete space, or the numbered joint actions of a MultiDiscrete space.

    Numbers follow C order: the last component varies fastest. Immutable.
    """

    def __init__(self, space: LeafSpace, constant: Callable[..., Any] = np.asarray) -> None:
        """`constant` converts a numpy array to a constant of the library in use."""
        nvec = components_of(space)
        assert nvec is not None, "discrete_actions() rejects continuous spaces"
        self.space, self.nvec = space, nvec
        self.n = prod(nvec)
        self.joint: Any = None  # [n, K] choices of each joint action; None for a Discrete space
        if isinstance(space, MultiDiscreteSpace):
            joint = np.stack(np.unravel_index(np.arange(self.n), nvec), axis=1)
            self.joint = constant(joint)
            self._columns = constant(joint + np.cumsum((0, *nvec[:-1])))  # [n, K] columns in a mask

    def to_env(self, index: Any) -> Any:
        """Converts action numbers to actions of the environment. [N] -> [N] or [N, K]"""
        return index if self.joint is None else self.joint[index]

    @property
    def strides(self) -> list[int]:
        """Strides of the components. Their dot product with an action is its number. [K]"""
        return [prod(self.nvec[k + 1 :]) for k in range(len(self.nvec))]

    def joint_mask(self, mask: Any) -> Any:
        """Marks the joint actions whose choices are all valid. [N, S] -> [N, n]

        The input concatenates the masks of the components, S = sum(nvec).
        """
        return mask if self.joint is None else mask[:, self._columns].all(2)


def discrete_actions(spec: EnvSpec, agent: str, max_joint_actions: int) -> DiscreteActions:
    """Returns the joint actions. Raises ConfigError if actions are continuous or too many."""
    nvec = discrete_components(spec, agent)
    n = prod(nvec)
    if isinstance(spec.action, MultiDiscreteSpace) and n > max_joint_actions:
        raise ConfigError(
            f"agent={agent} learns a value for each joint action, and "
            f"{format_space(spec.action)} of env.id={spec.id} has {n:,} of them, more than "
            f"agent.max_joint_actions={max_joint_actions}. Raise it, or use agent=discrete_sac, "
            "ppo, bc, awac or iql, which choose each component independently"
        )
    return DiscreteActions(spec.action)


@dataclass(frozen=True, slots=True)
class ActionBounds:
    """Scales actions between the environment's bounds and the interval [-1, 1] used by agents.

    Densities, entropies and noise refer to the scaled actions. In the environment's units a
    log-density would only differ by a constant.
    """

    space: BoxSpace
    middle: NDArray[np.float32]  # [A] centre of the bounds
    half: NDArray[np.float32]  # [A] half the distance between the bounds

    @property
    def size(self) -> int:
        """Number of dimensions of an action, A."""
        return len(self.middle)

    def to_env(self, action: NDArray[np.float32]) -> NDArray[Any]:
        """Rescales actions from [-1, 1] to the environment's bounds and clips. [N, A] -> [N, …]"""
        shape = (len(action), *self.space.shape)
        scaled: NDArray[np.float32] = (self.middle + self.half * action).reshape(shape)
        np.clip(scaled, self.space.low, self.space.high, out=scaled)
        return scaled


def action_bounds(space: LeafSpace) -> ActionBounds | None:
    """Returns the bounds of a float32 Box if they are finite, and None for any other space."""
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
    """Returns the bounds of continuous actions; raises ConfigError if there are none.

    `also` lists further supported spaces for the error message, e.g. "a Discrete or ".
    """
    bounds = action_bounds(spec.action)
    if bounds is None:
        raise ConfigError(
            f"agent={agent} needs {also}a Box action space of real numbers with finite bounds; "
            f"env.id={spec.id} has {format_space(spec.action)}{_suggest_remedy(spec.action)}"
        )
    return bounds


def action_outputs(spec: EnvSpec, agent: str) -> int:
    """Returns the number of policy outputs: one per choice of each component or Box dimension."""
    nvec = components_of(spec.action)
    return bounded_actions(spec, agent, also=ANY_CHOICE).size if nvec is None else sum(nvec)


def _suggest_remedy(space: LeafSpace) -> str:
    """Returns the part of an error message that suggests what to do about an action space."""
    if not isinstance(space, BoxSpace) or action_bounds(space) is not None:
        kind = format_space(space).partition("(")[0]
        return f". Agents for {kind} actions: {_list_agents(kind)}"
    if not np.issubdtype(space.dtype, np.floating):
        return (
            ". 'env.wrappers=[{DiscretizeAction: {bins: N}}]' turns integers into Discrete "
            f"actions, for {_list_agents('Discrete')}"
        )
    return (
        ". Give each action finite bounds, low below high, either in the environment or with "
        "'env.wrappers=[{my_wrappers\\:Bounded: {low: -1, high: 1}}]', using the TransformAction "
        "in docs/guides/own_environment.md. RescaleAction cannot rescale infinite bounds. "
        "ClipAction removes the bounds: leave it out, because agents never exceed them"
    )


def _list_agents(actions: str) -> str:
    from border_cli.registry import AGENTS  # imported late: only errors need it

    agents = [agent for agent in AGENTS if actions in agent.config_type.actions]
    return ", ".join(sorted(name for agent in agents for name in (agent.name, *agent.presets)))
