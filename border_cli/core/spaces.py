"""Action and observation spaces in numpy terms; `env/` translates Gymnasium's spaces.

Raw spaces are those of the environment. They are converted such that integers start at 0 and
floats have 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Array, leaves

ACTION_MASK: Final = "action_mask"  # observation key of the mask of valid actions
GOALS: Final = ("achieved_goal", "desired_goal")  # observation keys of a goal environment


@dataclass(frozen=True, slots=True)
class BoxSpace:
    """Real numbers or integers such as pixels. All floats of an environment become float32."""

    shape: tuple[int, ...]
    dtype: str  # numpy name: float32, uint8, …
    low: NDArray[Any]  # [shape]
    high: NDArray[Any]  # [shape]


@dataclass(frozen=True, slots=True)
class DiscreteSpace:
    """One of the integers 0 … n-1, as int64 without an extra axis."""

    n: int


@dataclass(frozen=True, slots=True)
class MultiDiscreteSpace:
    """Several integers, entry i in 0 … nvec[i]-1, as int64 [len(nvec)]."""

    nvec: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DictSpace:
    """Named parts, which are concatenated in the order of their keys."""

    spaces: dict[str, BoxSpace | DiscreteSpace | MultiDiscreteSpace]
    masked: bool = False  # whether `action_mask`, uint8 [n], marks the valid actions


LeafSpace: TypeAlias = BoxSpace | DiscreteSpace | MultiDiscreteSpace
Space: TypeAlias = LeafSpace | DictSpace


@dataclass(frozen=True, slots=True)
class RawSpace:
    """A space of the environment; `kind` is Box, Discrete, MultiDiscrete or MultiBinary."""

    kind: str
    shape: tuple[int, ...]
    dtype: str  # numpy name
    low: NDArray[Any]  # [shape]  lowest value
    high: NDArray[Any]  # [shape]  highest value
    text: str  # Gymnasium's representation

    @property
    def parts(self) -> dict[str, RawSpace]:
        """This space under the key "", for uniform access with `RawDict`."""
        return {"": self}

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """The dtype of rows: floats have 32 bits, as in networks; pixels stay uint8."""
        if self.kind != "Box":
            return np.dtype(np.int64)
        dtype = np.dtype(self.dtype)
        return np.dtype(np.float32) if dtype.kind == "f" else dtype

    @property
    def start(self) -> NDArray[Any]:
        """The lowest integer, which becomes 0. [shape]; 0 for a Box"""
        return np.zeros((), np.int64) if self.kind == "Box" else self.low

    @property
    def leaf(self) -> LeafSpace:
        """The converted space."""
        if self.kind == "Box":
            with np.errstate(over="ignore"):  # a bound beyond float32 becomes infinite
                low, high = self.low.astype(self.row_dtype), self.high.astype(self.row_dtype)
            return BoxSpace(self.shape, self.row_dtype.name, low, high)
        counts = (self.high - self.low + 1).ravel().tolist()
        return DiscreteSpace(*counts) if self.kind == "Discrete" else MultiDiscreteSpace((*counts,))


@dataclass(frozen=True, slots=True)
class RawDict:
    """Named parts of an observation of the environment."""

    parts: dict[str, RawSpace]
    masked: bool  # whether `action_mask` marks the valid actions


RawObservation: TypeAlias = RawSpace | RawDict


def convert_space(raw: RawObservation) -> Space:
    """Converts an observation space."""
    if isinstance(raw, RawSpace):
        return raw.leaf
    return DictSpace({key: part.leaf for key, part in raw.parts.items()}, masked=raw.masked)


@dataclass(frozen=True, slots=True)
class RawSpaces:
    """The observation space and the action space of an environment."""

    observation: RawObservation
    action: RawSpace

    @property
    def converted(self) -> tuple[Space, LeafSpace]:
        """The converted observation and action spaces."""
        return convert_space(self.observation), self.action.leaf


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """The description of an environment that other components are built from."""

    id: str
    observation: Space
    action: LeafSpace
    max_episode_steps: int | None  # time limit; None if episodes need not end
    stacked: bool = False  # whether observations are stacks of consecutive images, newest last
    info_metrics: tuple[str, ...] = ()  # keys recorded from the last `info` of an episode
    human_scores: tuple[float, float] | None = None  # published scores: random, human
    # Whether each environment has its own states of the global random generators.
    own_generators: bool = False
    raw: RawSpaces | None = None  # spaces of the environment, if known
    left_out: tuple[str, ...] = ()  # keys of a Dict observation that no agent sees


def allocate(space: Space, rows: int) -> Array:
    """Allocates uninitialised storage for `rows` values of the space.  [rows, …]"""
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
    """Returns whether observations contain a mask of the valid actions."""
    return isinstance(space, DictSpace) and space.masked


def without_mask(space: Space) -> Space:
    """Returns the space without the action mask; if one part remains, that part itself."""
    if not isinstance(space, DictSpace) or not space.masked:
        return space
    rest = {key: part for key, part in space.spaces.items() if key != ACTION_MASK}
    return DictSpace(rest) if len(rest) > 1 else next(iter(rest.values()))


def split_mask(obs: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Splits observations into network inputs and action masks, both views. [N, …], [N, n]"""
    assert isinstance(obs, dict), "see `has_masks`"
    rest = {key: part for key, part in obs.items() if key != ACTION_MASK}
    return rest if len(rest) > 1 else next(iter(rest.values())), obs[ACTION_MASK].view(np.bool_)


def row_nbytes(space: Space) -> int:
    """Returns the bytes of one value of the space."""
    return sum(part.nbytes for part in leaves(allocate(space, 1)))
