"""Which actions an agent can choose."""

from __future__ import annotations

from border_cli.core.errors import ConfigError
from border_cli.core.spaces import (
    BoxSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
)


def name_of(space: LeafSpace) -> str:
    """`Box(3,)`, `Discrete(2)` or `MultiDiscrete([2, 3])`."""
    match space:
        case BoxSpace(shape=shape):
            return f"Box{shape}"
        case DiscreteSpace(n=n):
            return f"Discrete({n})"
        case MultiDiscreteSpace(nvec=nvec):
            return f"MultiDiscrete({list(nvec)})"


def num_discrete_actions(spec: EnvSpec, agent: str) -> int:
    """How many actions there are; refuses an environment whose actions cannot be counted."""
    if not isinstance(spec.action, DiscreteSpace):
        raise ConfigError(
            f"agent={agent} needs a Discrete action space; "
            f"env.id={spec.id} has {name_of(spec.action)}"
        )
    return spec.action.n
