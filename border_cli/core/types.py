"""The values passed between the parts of a run. They are never modified after construction.

Their arrays are not modified either, except those of a `Batch`, which the next `sample` reuses, and
those of an `Experience`, which actors may overwrite after the next `receive`.

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
Form: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]  # dtype and shape of one array
Column: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]  # name, dtype and shape per row
Metrics: TypeAlias = Mapping[str, float]
# The state that a part needs to resume: numbers, strings, None, numpy arrays, and dicts (with
# string keys) and lists of these. A caller may store it, because it is never modified.
State: TypeAlias = dict[str, Any]
Beat: TypeAlias = Callable[[], object]  # heartbeat, called at each step of a long operation


EPISODE: Final = "episode"  # column of episode numbers, unique within a run


@dataclass(slots=True, kw_only=True)
class Transitions:
    """M transitions; each spans one step, or k steps after an n-step processor.

    Not frozen, because every action creates one and a frozen dataclass takes twice as long.
    """

    obs: Array  # [M, …]
    action: NDArray[Any]  # [M] int64, [M, A] int64 (MultiDiscrete), or [M, …] (Box)
    reward: NDArray[np.float32]  # [M]  r1 + g r2 + … over its k steps
    discount: NDArray[np.float32]  # [M]  g**k, or 0 if the episode TERMINATED within them
    next_obs: Array  # [M, …]  true successor, never a reset observation
    # Additional columns that the agent or the replay buffer needs.  [M, …] each
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reward)


@dataclass(slots=True, kw_only=True)
class Batch(Transitions):
    """B sampled transitions. Valid until the buffer's next `sample`, which may reuse the arrays."""

    weight: NDArray[np.float32]  # [B]  importance weights, all 1 for uniform sampling
    index: NDArray[np.int64]  # [B]  slots in the buffer, for priorities


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished training episode."""

    score: float  # the undiscounted return
    length: int  # env steps
    # Final `info` values for `EnvSpec.info_metrics`: NaN if one is missing, () if all are.
    metrics: tuple[float, ...] = ()

    def numbers(self, metrics: int | None = None) -> list[float]:
        """Returns score, length and metrics; pads missing metrics with NaN, up to `metrics`."""
        missing = [math.nan] * (0 if metrics is None else metrics - len(self.metrics))
        return [self.score, self.length, *self.metrics, *missing]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Self:
        """Restores an episode from its `numbers`."""
        metrics = tuple(numbers[2:])
        return cls(numbers[0], int(numbers[1]), () if all(map(math.isnan, metrics)) else metrics)


NO_EXTRAS: Final[Mapping[str, NDArray[Any]]] = {}


class Step(NamedTuple):
    """The result of one action in each of N environments.

    A tuple, because every action creates one and a frozen dataclass takes twice as long. Constant
    arrays may be shared by many steps; they are read-only.
    """

    obs: Array  # [N, …]  observations acted on
    action: NDArray[Any]  # [N] or [N, A]
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    next_obs: Array  # [N, …]  true successor, even at the end of an episode
    act_obs: Array  # [N, …]  observations to act on next: next_obs, or the first of an episode
    episodes: tuple[Episode, ...] = ()  # episodes that ended with this step
    # [N]  False if the environment used this step to reset itself: its action had no effect and
    # there is no transition. None means that all moved.
    moved: NDArray[np.bool_] | None = None
    extras: Mapping[str, NDArray[Any]] = NO_EXTRAS  # [N, …] each, from the policy

    @property
    def env_steps(self) -> int:
        """Number of actions that had an effect."""
        return len(self.reward) if self.moved is None else int(np.count_nonzero(self.moved))

    @property
    def changed_envs(self) -> list[int]:
        """Environments whose next action belongs to a different episode than this step.

        An environment that uses a step to reset itself is listed twice: after the end of its
        episode and after the reset.
        """
        ended = self.terminated | self.truncated  # [N]
        return np.flatnonzero(ended if self.moved is None else ended | ~self.moved).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One message from an actor to the learner (Border's PushedItemMessage)."""

    actor_id: int
    opt_steps: int  # update count of the weights used last
    env_steps: int  # actions taken since the previous message
    transitions: Transitions
    episodes: tuple[Episode, ...]
    returns: tuple[Moments, ...] = ()  # only if the agent needs them; one per message sent


PAST_SCHEDULES: Final = 2**53  # env steps at which every exploration schedule has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Copies of the weights and counters that actors act with (Border's ModelInfo)."""

    opt_steps: int  # updates of the agent when it was copied
    env_steps: int  # total that the learner has received, for exploration schedules
    warm_up: bool  # whether actors act uniformly at random with this snapshot
    arrays: Mapping[str, NDArray[Any]]
    episode_limit: int | None = None  # env steps per evaluated episode; None if another one is set


def _no_td_error() -> NDArray[Any]:
    raise RunFailed(
        "the agent returned no TD errors for prioritized replay: set gives_priorities = False in "
        "its config class, which rejects such a replay buffer before the run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of one update, read lazily so that no update waits for a device."""

    metrics: Mapping[str, SupportsFloat]  # names without the `train/` prefix
    # () -> [B], signed or absolute; raises RunFailed if the agent has none
    td_error: Callable[[], NDArray[Any]] = _no_td_error


def map_array(function: Callable[[NDArray[Any]], NDArray[Any]], array: Array) -> Array:
    """Applies `function` to the array, or to each array of a dict."""
    if isinstance(array, dict):
        return {key: function(value) for key, value in array.items()}
    return function(array)


def combine_arrays(
    function: Callable[[list[NDArray[Any]]], NDArray[Any]], arrays: Sequence[Array]
) -> Array:
    """Applies `function` to the list of arrays, or to the list of each key of dicts."""
    if isinstance(arrays[0], dict):
        return {key: function([parts[key] for parts in arrays]) for key in arrays[0]}
    return function(list(arrays))  # type: ignore[arg-type]


def leaves(array: Array) -> list[NDArray[Any]]:
    """Returns the arrays of an observation, in the order of its keys."""
    return list(array.values()) if isinstance(array, dict) else [array]


def num_rows(array: Array) -> int:
    """Returns the length of the leading axis."""
    return len(leaves(array)[0])
