"""Action and observation spaces in numpy terms; `env/` translates Gymnasium's spaces.

Raw spaces are those of an environment itself. They become spaces whose integers are counted from 0,
and nothing is wider than float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Array, leaves

ACTION_MASK: Final = "action_mask"  # part of an observation: which actions are valid


@dataclass(frozen=True, slots=True)
class BoxSpace:
    """Real numbers or pixels. float64 spaces of an environment arrive as float32."""

    shape: tuple[int, ...]
    dtype: str  # a numpy name: float32, uint8, …
    low: NDArray[Any]  # [shape]
    high: NDArray[Any]  # [shape]


@dataclass(frozen=True, slots=True)
class DiscreteSpace:
    """One of the integers 0 … n-1, as int64 without an axis of its own."""

    n: int


@dataclass(frozen=True, slots=True)
class MultiDiscreteSpace:
    """Several integers, entry i in 0 … nvec[i]-1, as int64 [len(nvec)]."""

    nvec: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DictSpace:
    """Named parts; order of the keys is the order of concatenation."""

    spaces: dict[str, BoxSpace | DiscreteSpace | MultiDiscreteSpace]
    masked: bool = False  # whether its `action_mask`, uint8 [n], says which actions are valid


LeafSpace: TypeAlias = BoxSpace | DiscreteSpace | MultiDiscreteSpace
Space: TypeAlias = LeafSpace | DictSpace


@dataclass(frozen=True, slots=True)
class RawSpace:
    """A space as the environment has it: a Box, Discrete, MultiDiscrete or MultiBinary one, as
    `kind` says."""

    kind: str
    shape: tuple[int, ...]
    dtype: str  # a numpy name
    low: NDArray[Any]  # [shape]  the least value
    high: NDArray[Any]  # [shape]  the greatest
    text: str  # as Gymnasium shows it

    @property
    def parts(self) -> dict[str, RawSpace]:
        """As of a `RawDict`; "" is an observation by itself."""
        return {"": self}

    @property
    def carried(self) -> np.dtype[Any]:
        """Networks compute in float32, so nothing wider is carried; pixels stay uint8."""
        if self.kind != "Box":
            return np.dtype(np.int64)
        dtype = np.dtype(self.dtype)
        return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize > 4 else dtype

    @property
    def start(self) -> NDArray[Any]:
        """What the environment calls 0. [shape]; 0 of a Box, which counts nothing"""
        return np.zeros((), np.int64) if self.kind == "Box" else self.low

    @property
    def leaf(self) -> LeafSpace:
        """What becomes of it."""
        if self.kind == "Box":
            with np.errstate(over="ignore"):  # a bound beyond float32 is no bound: infinity
                low, high = self.low.astype(self.carried), self.high.astype(self.carried)
            return BoxSpace(self.shape, self.carried.name, low, high)
        counts = (self.high - self.low + 1).ravel().tolist()
        return DiscreteSpace(*counts) if self.kind == "Discrete" else MultiDiscreteSpace((*counts,))


@dataclass(frozen=True, slots=True)
class RawDict:
    """Named parts of an observation as the environment has them."""

    parts: dict[str, RawSpace]
    masked: bool  # whether its `action_mask` says which actions are valid


RawObservation: TypeAlias = RawSpace | RawDict


def space_of(raw: RawObservation) -> Space:
    """What becomes of an observation space."""
    if isinstance(raw, RawSpace):
        return raw.leaf
    return DictSpace({key: part.leaf for key, part in raw.parts.items()}, masked=raw.masked)


@dataclass(frozen=True, slots=True)
class RawSpaces:
    """Both spaces of an environment."""

    observation: RawObservation
    action: RawSpace

    @property
    def ours(self) -> tuple[Space, LeafSpace]:
        """What becomes of them."""
        return space_of(self.observation), self.action.leaf


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """The description of an environment that other components are built from."""

    id: str
    observation: Space
    action: LeafSpace
    max_episode_steps: int | None  # the time limit, None where episodes need not end
    stacked: bool = False  # whether observations are stacks of successive images, the newest last
    info_metrics: tuple[str, ...] = ()  # what is recorded of the `info` of each episode's last step
    human_scores: tuple[float, float] | None = None  # published, of random actions and a human
    # Whether each environment has states of the global generators of its own.
    own_generators: bool = False
    raw: RawSpaces | None = None  # the spaces as the environment has them, where they are told


def allocate(space: Space, rows: int) -> Array:
    """Uninitialised storage for `rows` values of the space.  [rows, …]"""
    match space:
        case DictSpace(spaces=parts):
            return {key: np.asarray(allocate(part, rows)) for key, part in parts.items()}
        case BoxSpace(shape=shape, dtype=dtype):
            return np.empty((rows, *shape), dtype)
        case DiscreteSpace():
            return np.empty(rows, np.int64)
        case MultiDiscreteSpace(nvec=nvec):
            return np.empty((rows, len(nvec)), np.int64)


def has_masks(space: Space) -> bool:
    """Whether observations say which actions are valid."""
    return isinstance(space, DictSpace) and space.masked


def without_mask(space: Space) -> Space:
    """The observations that networks see: all but the action mask; one part alone is itself."""
    if not isinstance(space, DictSpace) or not space.masked:
        return space
    rest = {key: part for key, part in space.spaces.items() if key != ACTION_MASK}
    return DictSpace(rest) if len(rest) > 1 else next(iter(rest.values()))


def split_mask(obs: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Masked observations as networks see them, and their masks, both views. [N, …], [N, n]"""
    assert isinstance(obs, dict), "see `has_masks`"
    rest = {key: part for key, part in obs.items() if key != ACTION_MASK}
    return rest if len(rest) > 1 else next(iter(rest.values())), obs[ACTION_MASK].view(np.bool_)


def row_nbytes(space: Space) -> int:
    """Bytes of one value of the space."""
    return sum(part.nbytes for part in leaves(allocate(space, 1)))
