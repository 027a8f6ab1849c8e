"""Hindsight experience replay.

Andrychowicz et al. 2017, "Hindsight experience replay", Algorithm 1. Goals are replaced as
transitions are sampled and not as they are stored, so k costs no memory; rewards are those of the
environment's `compute_reward`. Beyond the paper: a goal that ends episodes (`compute_terminated`)
ends the relabelled transition too.
`draws`: Manela and Biess 2021, "Bias-reduced hindsight experience replay with virtual goal
prioritization", Filtered-HER. While nothing moves the object of a task, all later goals are where
it lies, achieved whatever the agent does: such transitions, most of all, do not say how a goal is
reached. Here others are drawn in their place, so that batches keep their size.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import ReplayBufferConfig
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import GoalRewards
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, State, Transitions, leaves
from border_cli.replay_buffer.config import HindsightConfig, Strategy
from border_cli.replay_buffer.uniform import UniformReplayBuffer

DESIRED: Final = "desired_goal"
ACHIEVED: Final = "obs.achieved_goal"
ACHIEVED_NEXT: Final = "next_obs.achieved_goal"
MISSING: Final = -1  # in place of the number of a row of an episode that was overwritten

KEYS_AT_ONCE: Final = 4096  # rows that are copied at a time

# What the lookup of its rows takes per transition: episode and step in arrays, the row's number in
# its episode, and a share of the episode's objects.
LINKS_NBYTES: Final = 48


def observation_keys(transitions: Transitions) -> tuple[list[bytes], list[bytes]]:
    """The observations of M rows, and those after them, as bytes that compare equal where all
    their numbers do, to the bit."""
    count = len(transitions)
    begins, ends = (
        np.concatenate(
            [
                np.ascontiguousarray(leaf).reshape(count, -1).view(np.uint8).reshape(count, -1)
                for leaf in leaves(array)
            ],
            axis=1,
        )
        for array in (transitions.obs, transitions.next_obs)
    )
    return [row.tobytes() for row in begins], [row.tobytes() for row in ends]


class Episode:
    """The rows of one episode so far."""

    __slots__ = ("end", "rows")

    def __init__(self, rows: Iterable[int] = ()) -> None:
        self.rows = array("q", rows)  # their numbers in the order of the steps
        self.end: bytes | None = None  # the observation that its next row begins with


class EpisodeLinks:
    """Which episode each stored row belongs to, found without being told.

    Rows say neither which environment they come from nor where an episode was truncated. But the
    observation that a row begins with is, to the bit, the one that the row before it ended with,
    and the first of an episode is drawn anew. Where several episodes stand at the same observation
    with the same goal, the one that has waited longest is continued: what follows can be reached
    from there in either.
    """

    def __init__(self, capacity: int) -> None:
        self.episode_of = np.zeros(capacity, np.int64)  # [slots]
        self.step_of = np.zeros(capacity, np.int64)  # [slots]  0 for the first row of an episode
        self.episodes: dict[int, Episode] = {}
        self._waiting: dict[bytes, list[int]] = {}  # episodes by the observation they stand at
        self._next = 0  # number of the next episode

    @property
    def nbytes(self) -> int:
        return len(self.episode_of) * LINKS_NBYTES

    def append(self, number: int, slot: int, begin: bytes, end: bytes | None) -> None:
        """Adds the row of this number; `end` is None where it terminated its episode."""
        waiting = self._waiting.get(begin)
        if waiting:
            which = waiting.pop(0)
            if not waiting:
                del self._waiting[begin]
            episode = self.episodes[which]
        else:
            which, episode = self._next, Episode()
            self._next += 1
            self.episodes[which] = episode
        self.episode_of[slot] = which
        self.step_of[slot] = len(episode.rows)
        episode.rows.append(number)
        episode.end = end
        if end is not None:
            self._waiting.setdefault(end, []).append(which)

    def drop(self, slot: int) -> None:
        """Forgets the row in this slot, which is about to be overwritten: the oldest one stored."""
        which = int(self.episode_of[slot])
        episode = self.episodes[which]
        if self.step_of[slot] + 1 < len(episode.rows):
            return
        del self.episodes[which]
        if episode.end is not None:
            waiting = self._waiting[episode.end]
            waiting.remove(which)
            if not waiting:
                del self._waiting[episode.end]

    def load(
        self, episode_of: NDArray[np.int64], step_of: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> None:
        """Restores the episodes of the first slots, whose rows have these numbers. [M] each

        `wait` follows for their last rows.
        """
        count = len(numbers)
        self.episode_of[:count], self.step_of[:count] = episode_of, step_of
        self.episodes, self._waiting = {}, {}
        order = np.argsort(numbers)
        for which, step, number in zip(
            episode_of[order].tolist(), step_of[order].tolist(), numbers[order].tolist(),
            strict=True,
        ):  # fmt: skip
            if which not in self.episodes:
                self.episodes[which] = Episode([MISSING] * step)
            self.episodes[which].rows.append(number)
        self._next = int(episode_of.max()) + 1 if count else 0

    def wait(self, which: int, end: bytes | None) -> None:
        """An episode that was loaded stands at this observation; in the order of last rows."""
        self.episodes[which].end = end
        if end is not None:
            self._waiting.setdefault(end, []).append(which)


class HindsightReplayBuffer(UniformReplayBuffer):
    """Every row is equally likely, and k of k + 1 sampled ones have a goal that was achieved in
    their own episode; only the learner's thread calls it.
    """

    def __init__(
        self,
        config: HindsightConfig,
        *,
        spec: EnvSpec,
        rng: np.random.Generator,
        goal_rewards: GoalRewards,
        gamma: float,
    ) -> None:
        super().__init__(config, spec=spec, rng=rng)
        self.config = config
        self._goal_rewards = goal_rewards
        self._gamma = np.float32(gamma)
        self._links = EpisodeLinks(config.capacity)
        self._achieved_before = self.ring.column(ACHIEVED)  # [slots, …]
        self._achieved = self.ring.column(ACHIEVED_NEXT)  # [slots, …]
        self._loaded: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @classmethod
    def row_nbytes(cls, config: ReplayBufferConfig, spec: EnvSpec) -> int:
        return super().row_nbytes(config, spec) + LINKS_NBYTES

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._links.nbytes

    def push(self, transitions: Transitions) -> None:
        ring, links = self.ring, self._links
        begins, ends = observation_keys(transitions)
        terminated = (transitions.discount == 0).tolist()
        for i, (begin, end, over) in enumerate(zip(begins, ends, terminated, strict=True)):
            slot = (ring.position + i) % ring.capacity
            if ring.size + i >= ring.capacity:
                links.drop(slot)
            links.append(ring.pushed + i, slot, begin, None if over else end)
        super().push(transitions)

    def sample(self, batch_size: int) -> Batch:
        """Draws with replacement; raises `RunFailed` while empty. Weights are 1."""
        index = self._draw(batch_size)  # [B]
        chance, place = self._rng.random((2, batch_size))
        # The paper stores each transition once with its own goal, and k times with others.
        (chosen,) = np.nonzero(chance * (self.config.k + 1) < self.config.k)  # [R]
        goals = self._goals(index, chosen, place[chosen]) if len(chosen) else None
        batch = self.ring.gather(index)
        if goals is not None:
            self._relabel(batch, chosen, goals)
        return batch

    def _goals(
        self, index: NDArray[np.int64], chosen: NDArray[np.intp], place: NDArray[np.float64]
    ) -> NDArray[Any]:
        """New goals for these rows of a batch; other transitions are drawn in place of those whose
        goal was achieved before. [B], [R], [R] -> [R, …]"""
        goals: NDArray[Any] = self._achieved[self._drawn(index[chosen], place)]
        left = np.arange(len(chosen))  # of `chosen`: not yet known to be of use
        for _ in range(self.config.draws - 1):
            left = left[self._were_achieved(index[chosen[left]], goals[left])]
            if not len(left):
                break
            index[chosen[left]] = self._rng.integers(self.ring.stored, size=len(left))
            place = self._rng.random(len(left))
            goals[left] = self._achieved[self._drawn(index[chosen[left]], place)]
        return goals

    def _were_achieved(self, slots: NDArray[np.int64], goals: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether what was achieved before these transitions is worth as much as the goal itself.
        [R], [R, …] -> [R]"""
        outcomes = np.concatenate([self._achieved_before[slots], goals])
        rewards = self._goal_rewards.rewards(outcomes, np.concatenate([goals, goals]))
        achieved: NDArray[np.bool_] = rewards[: len(goals)] == rewards[len(goals) :]
        return achieved

    def _relabel(self, batch: Batch, chosen: NDArray[np.intp], goals: NDArray[Any]) -> None:
        """Replaces goal, reward and discount in these rows of the batch. [R], [R, …]"""
        obs, next_obs = batch.obs, batch.next_obs
        assert isinstance(obs, dict)
        assert isinstance(next_obs, dict)
        achieved = next_obs["achieved_goal"][chosen]  # [R, …]
        obs[DESIRED][chosen] = goals
        next_obs[DESIRED][chosen] = goals
        batch.reward[chosen] = self._goal_rewards.rewards(achieved, goals)
        terminated = self._goal_rewards.terminated(achieved, goals)
        if terminated is not None:
            batch.discount[chosen] = np.where(terminated, np.float32(0), self._gamma)

    def _drawn(self, slots: NDArray[np.int64], place: NDArray[np.float64]) -> NDArray[np.int64]:
        """The slots whose rows achieved the goals for these, drawn by `place` in 0 … 1. [R]"""
        links = self._links
        episodes = [links.episodes[each].rows for each in links.episode_of[slots].tolist()]
        length = np.array([len(each) for each in episodes])  # [R]
        match self.config.strategy:
            case Strategy.future:  # the row's own outcome, or a later one
                low = links.step_of[slots]
            case Strategy.episode:
                oldest = self.ring.pushed - self.ring.size
                low = np.array([bisect_left(each, oldest) for each in episodes])
            case Strategy.final:
                low = length - 1
        steps = low + (place * (length - low)).astype(np.int64)  # [R]
        numbers = [rows[step] for rows, step in zip(episodes, steps.tolist(), strict=True)]
        return self.ring.slots_of(np.array(numbers))

    def state_dict(self) -> State:
        size = self.ring.size
        return {
            **super().state_dict(),
            "episode": self._links.episode_of[:size].copy(),
            "step": self._links.step_of[:size].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        found = state.get("episode"), state.get("step")
        size = state.get("size")
        if not all(
            isinstance(each, np.ndarray) and each.dtype == np.int64 and each.shape == (size,)
            for each in found
        ):
            raise CheckpointError("the saved replay buffer has no episodes: it is no hindsight one")
        super().load_state_dict(state)
        self._links = EpisodeLinks(self.ring.capacity)
        self._loaded = found  # type: ignore[assignment] # checked just now

    def _rows_restored(self) -> None:
        assert self._loaded is not None
        ring, links = self.ring, self._links
        slots = np.arange(ring.size)
        numbers = ring.pushed - 1 - (ring.position - 1 - slots) % ring.capacity  # [size]
        links.load(*self._loaded, numbers)
        self._loaded = None
        last = np.array(sorted(each.rows[-1] for each in links.episodes.values()), np.int64)
        for start in range(0, len(last), KEYS_AT_ONCE):
            at = ring.slots_of(last[start : start + KEYS_AT_ONCE])
            rows = ring.read(at)
            _, ends = observation_keys(rows)
            terminated = (rows.discount == 0).tolist()
            for which, end, over in zip(
                links.episode_of[at].tolist(), ends, terminated, strict=True
            ):
                links.wait(which, None if over else end)
