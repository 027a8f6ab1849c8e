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
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import GoalRewards
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import EPISODE, Batch, Column, State, Transitions
from border_cli.errors import RunFailed
from border_cli.replay_buffer.config import HindsightConfig, Strategy
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from border_cli.settings.run import ReplayBufferConfig

DESIRED: Final = "desired_goal"
ACHIEVED: Final = "obs.achieved_goal"
ACHIEVED_NEXT: Final = "next_obs.achieved_goal"
MISSING: Final = -1  # in place of the number of a row of an episode that was overwritten

# Per transition: its step, its number among the rows of its episode, and a share of that episode's
# objects.
EPISODES_NBYTES: Final = 40


class StoredEpisodes:
    """The stored rows of each episode, in the order of its steps."""

    def __init__(self, episode_of: NDArray[np.int64]) -> None:
        self.episode_of = episode_of  # [slots]  the buffer's own column
        self.step_of = np.zeros(len(episode_of), np.int64)  # [slots]  place in its episode
        self.rows: dict[int, array[int]] = {}  # by episode: numbers of rows, dropped ones as well

    @property
    def nbytes(self) -> int:
        return len(self.episode_of) * EPISODES_NBYTES

    def append(self, number: int, slot: int, episode: int) -> None:
        """Adds the row of this number."""
        rows = self.rows.setdefault(episode, array("q"))
        self.step_of[slot] = len(rows)
        rows.append(number)

    def drop(self, slot: int, episode: int) -> None:
        """Forgets the row in this slot, which is about to be overwritten: the oldest one stored."""
        if self.step_of[slot] + 1 == len(self.rows[episode]):
            del self.rows[episode]

    def load(self, step_of: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Restores the episodes of the first slots, whose rows have these numbers. [M] each"""
        self.step_of[: len(numbers)] = step_of
        self.rows = {}
        for slot in np.argsort(numbers).tolist():
            dropped = [MISSING] * int(step_of[slot])
            rows = self.rows.setdefault(int(self.episode_of[slot]), array("q", dropped))
            rows.append(int(numbers[slot]))


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
        extras: Sequence[Column],
        goal_rewards: GoalRewards,
        gamma: float,
    ) -> None:
        super().__init__(config, spec=spec, rng=rng, extras=extras)
        self.config = config
        self._goal_rewards = goal_rewards
        self._gamma = np.float32(gamma)
        self._episodes = StoredEpisodes(self.ring.column(EPISODE))
        self._achieved_before = self.ring.column(ACHIEVED)  # [slots, …]
        self._achieved = self.ring.column(ACHIEVED_NEXT)  # [slots, …]
        self._loaded: NDArray[np.int64] | None = None  # [M]  steps of rows to be restored

    @classmethod
    def row_nbytes(
        cls, config: ReplayBufferConfig, spec: EnvSpec, extras: Sequence[Column] = ()
    ) -> int:
        return super().row_nbytes(config, spec, extras) + EPISODES_NBYTES

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._episodes.nbytes

    def push(self, transitions: Transitions) -> None:
        ring, stored = self.ring, self._episodes
        episodes = transitions.extras.get(EPISODE)  # [M]
        if episodes is None:
            raise RunFailed(
                "replay_buffer=hindsight must know the episode of each transition: the step "
                'processor has to give `Transitions.extras["episode"]` (see '
                "step_processor/n_step.py)"
            )
        numbers = episodes.tolist()
        for i, episode in enumerate(numbers):
            slot = (ring.position + i) % ring.capacity
            if ring.size + i >= ring.capacity:
                before = i - ring.capacity  # of these rows, where they are more than fit
                stored.drop(slot, numbers[before] if before >= 0 else int(stored.episode_of[slot]))
            stored.append(ring.pushed + i, slot, episode)
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
        stored = self._episodes
        episodes = [stored.rows[each] for each in stored.episode_of[slots].tolist()]
        length = np.array([len(each) for each in episodes])  # [R]
        match self.config.strategy:
            case Strategy.future:  # the row's own outcome, or a later one
                low = stored.step_of[slots]
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
            "step": self._episodes.step_of[:size].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._episodes = StoredEpisodes(self.ring.column(EPISODE))
        self._loaded = state["step"]

    def _rows_restored(self) -> None:
        assert self._loaded is not None
        ring = self.ring
        numbers = ring.pushed - 1 - (ring.position - 1 - np.arange(ring.size)) % ring.capacity
        self._episodes.load(self._loaded, numbers)
        self._loaded = None
