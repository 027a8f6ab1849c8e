"""The values that travel between the parts: frozen but for `Transitions`, which nobody changes.

Arrays in them are never written again; those of a `Batch` are, by the next `sample`.

Shapes: M transitions, B sampled transitions, N environments of one actor, A action dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.returns import Moments
from border_cli.errors import RunFailed

# One observation stream: an array, or one array per key of a Dict space. Leading axis M, B or N.
Array: TypeAlias = NDArray[Any] | dict[str, NDArray[Any]]
Form: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]  # type and shape of one array
Column: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]  # of rows: name, type, shape
Metrics: TypeAlias = Mapping[str, float]
# What a part needs to resume later: numbers, strings, None, numpy arrays, and dicts (with strings
# as keys) and lists of these. A caller may keep it: nothing in it is written again.
State: TypeAlias = dict[str, Any]
Beat: TypeAlias = Callable[[], object]  # called at each step of what may take long: a sign of life


EPISODE: Final = "episode"  # column of numbers: no two episodes of a run have the same


@dataclass(slots=True, kw_only=True)
class Transitions:
    """M transitions; each spans one step, or k steps after an n-step processor.

    Never changed. It is not frozen, because every action makes one, and that takes twice the time.
    """

    obs: Array  # [M, …]
    action: NDArray[Any]  # [M] int64, or [M, A] float32
    reward: NDArray[np.float32]  # [M]  r1 + g r2 + … over its k steps
    discount: NDArray[np.float32]  # [M]  g**k, and 0 where the episode TERMINATED within them
    next_obs: Array  # [M, …]  the true successor, never a reset observation
    # [M, …] each: the columns that the agent or the replay buffer asks for
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reward)


@dataclass(slots=True, kw_only=True)
class Batch(Transitions):
    """B sampled transitions. Valid until the buffer's next `sample`: it may reuse the arrays."""

    weight: NDArray[np.float32]  # [B]  importance weights, all 1 where sampling is uniform
    index: NDArray[np.int64]  # [B]  slots of the buffer, for priorities


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished training episode."""

    score: float  # the undiscounted return
    length: int  # env steps
    # Last values in `info` of what `EnvSpec.info_metrics` names, NaN where there was none; () where
    # it was none of them.
    metrics: tuple[float, ...] = ()

    def numbers(self, metrics: int | None = None) -> list[float]:
        """Score, length and its metrics; where it has none, so many NaN in their place."""
        missing = [math.nan] * (0 if metrics is None else metrics - len(self.metrics))
        return [self.score, self.length, *self.metrics, *missing]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Self:
        """From its `numbers`."""
        metrics = tuple(numbers[2:])
        return cls(numbers[0], int(numbers[1]), () if all(map(math.isnan, metrics)) else metrics)


NO_EXTRAS: Final[Mapping[str, NDArray[Any]]] = {}


class Step(NamedTuple):
    """The answer of N environments to one action each.

    A tuple, because every action makes one and a frozen dataclass takes twice the time. Constant
    arrays may be shared by many steps; then they cannot be written to.
    """

    obs: Array  # [N, …]  what was acted on
    action: NDArray[Any]  # [N] or [N, A]
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    next_obs: Array  # [N, …]  the true successor, also at the end of an episode
    act_obs: Array  # [N, …]  what to act on next: next_obs, or the first of a new episode
    episodes: tuple[Episode, ...] = ()  # those that ended with this step
    # [N]  False where an environment spent this step on its own reset: that is no transition, and
    # its action had no effect. None: all moved.
    moved: NDArray[np.bool_] | None = None
    extras: Mapping[str, NDArray[Any]] = NO_EXTRAS  # [N, …] each: of the policy, with the action

    @property
    def env_steps(self) -> int:
        """Actions that had an effect."""
        return len(self.reward) if self.moved is None else int(np.count_nonzero(self.moved))

    @property
    def begun(self) -> list[int]:
        """The environments whose next action belongs to another episode than this step.

        One that spends a step on its own reset is among them twice: after its end and after that.
        """
        ended = self.terminated | self.truncated  # [N]
        return np.flatnonzero(ended if self.moved is None else ended | ~self.moved).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One message of an actor to the learner (Border's PushedItemMessage)."""

    actor_id: int
    opt_steps: int  # of the weights that acted last
    env_steps: int  # actions taken since the previous message
    transitions: Transitions
    episodes: tuple[Episode, ...]
    returns: tuple[Moments, ...] = ()  # where the agent needs them: one per message sent


PAST_SCHEDULES: Final = 2**53  # env steps after which every exploration schedule has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Weights and counters that actors act with, as real copies (Border's ModelInfo)."""

    opt_steps: int  # of the agent when it was copied
    env_steps: int  # of all actors, as counted by the learner: exploration schedules depend on it
    warm_up: bool  # actors act uniformly at random while this is the newest
    arrays: Mapping[str, NDArray[Any]]
    episode_limit: int | None = None  # env steps of an evaluated episode; None: as the env has it


def _no_td_error() -> NDArray[Any]:
    raise RunFailed(
        "the agent returned no TD errors for prioritized replay: set gives_priorities = False in "
        "its config class, which rejects such a replay buffer before the run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The outcome of one update, read lazily so that no update waits for a device."""

    metrics: Mapping[str, SupportsFloat]  # names without the `train/` in front
    # () -> [B], signed or absolute; raises RunFailed where the agent has none
    td_error: Callable[[], NDArray[Any]] = _no_td_error


def map_array(function: Callable[[NDArray[Any]], NDArray[Any]], array: Array) -> Array:
    """Applies `function` to the array, or to each array of a dict."""
    if isinstance(array, dict):
        return {key: function(value) for key, value in array.items()}
    return function(array)


def leaves(array: Array) -> list[NDArray[Any]]:
    """The arrays of an observation, in the order of its keys."""
    return list(array.values()) if isinstance(array, dict) else [array]


def num_rows(array: Array) -> int:
    """The length of the leading axis."""
    return len(leaves(array)[0])
