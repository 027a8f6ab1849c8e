"""The action spaces that agents take, and the refusal of others.

The registry is imported by the function that lists agents in a refusal.
"""

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

ANY_CHOICE = "a Discrete, MultiDiscrete, MultiBinary or "  # what some agents take beside a Box


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


def components_of(space: LeafSpace) -> tuple[int, ...] | None:
    """The number of choices of each component of an action; of a Discrete space one component.

    None of a Box.
    """
    match space:
        case DiscreteSpace(n=n):
            return (n,)
        case MultiDiscreteSpace(nvec=nvec):
            return nvec
        case _:
            return None


def discrete_components(spec: EnvSpec, agent: str) -> tuple[int, ...]:
    """The number of choices of each component; refuses an environment with other actions."""
    nvec = components_of(spec.action)
    if nvec is None:
        raise ConfigError(
            f"agent={agent} needs a Discrete, MultiDiscrete or MultiBinary action space; "
            f"env.id={spec.id} has {name_of(spec.action)}{_remedy(spec.action)}"
        )
    return nvec


class DiscreteActions:
    """The actions of a Discrete space; or all joint ones of a MultiDiscrete space, numbered.

    The last component counts fastest, as in numpy's order of axes. Never written to.
    """

    def __init__(self, space: LeafSpace, constant: Callable[..., Any] = np.asarray) -> None:
        """`constant` makes an array of numpy, or of torch, out of one of numpy."""
        nvec = components_of(space)
        assert nvec is not None, "discrete_actions() refuses others"
        self.space, self.nvec = space, nvec
        self.n = prod(nvec)
        self.joint: Any = None  # [n, K] the choices of each joint action
        if isinstance(space, MultiDiscreteSpace):
            joint = np.stack(np.unravel_index(np.arange(self.n), nvec), axis=1)
            self.joint = constant(joint)
            self._columns = constant(joint + np.cumsum((0, *nvec[:-1])))  # … in a mask

    def to_env(self, index: Any) -> Any:
        """The environment's actions of these numbers. [N] -> [N] or [N, K]"""
        return index if self.joint is None else self.joint[index]

    @property
    def strides(self) -> list[int]:
        """By which the choices of an action add up to its number. [K]"""
        return [prod(self.nvec[k + 1 :]) for k in range(len(self.nvec))]

    def joint_mask(self, mask: Any) -> Any:
        """The joint actions of which each choice is allowed; of numpy or torch. [N, S] -> [N, n]

        S = sum(nvec): the masks of the components side by side.
        """
        return mask if self.joint is None else mask[:, self._columns].all(2)


def discrete_actions(spec: EnvSpec, agent: str, max_joint_actions: int) -> DiscreteActions:
    """The actions as an agent numbers them; refuses an environment that has too many or others."""
    nvec = discrete_components(spec, agent)
    n = prod(nvec)
    if isinstance(spec.action, MultiDiscreteSpace) and n > max_joint_actions:
        raise ConfigError(
            f"agent={agent} learns a value for each joint action, and {name_of(spec.action)} of "
            f"env.id={spec.id} has {n:,} of them, more than agent.max_joint_actions="
            f"{max_joint_actions}. Raise it, or use agent=discrete_sac, bc, awac or iql, which "
            "choose each component by itself"
        )
    return DiscreteActions(spec.action)


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
    """One number per choice of each component, or per dimension of a Box; refuses all else."""
    nvec = components_of(spec.action)
    return bounded_actions(spec, agent, also=ANY_CHOICE).size if nvec is None else sum(nvec)


def _remedy(space: LeafSpace) -> str:
    """The advice where an agent does not take an action space."""
    if not isinstance(space, BoxSpace) or action_bounds(space) is not None:
        kind = name_of(space).partition("(")[0]
        return f". Agents for {kind} actions: {_agents_for(kind)}"
    if not np.issubdtype(space.dtype, np.floating):
        return (
            ". For integers, 'env.wrappers=[{DiscretizeAction: {bins: N}}]' makes the actions "
            f"Discrete, for {_agents_for('Discrete')}"
        )
    return (
        ". Give each action finite bounds, low below high: in the environment, or by "
        "'env.wrappers=[{my_wrappers\\:Bounded: {low: -1, high: 1}}]' with the class of "
        "docs/components.md, a TransformAction. RescaleAction cannot rescale infinite "
        "bounds, and ClipAction removes bounds: leave it out, agents never exceed them"
    )


def _agents_for(actions: str) -> str:
    from border_cli.registry import AGENTS

    found = [each for each in AGENTS if actions in each.config_type.actions]
    return ", ".join(sorted(name for each in found for name in (each.name, *each.presets)))
