"""Hindsight experience replay.

Andrychowicz et al. 2017, "Hindsight experience replay", Algorithm 1. Goals are replaced when
transitions are sampled and not when they are stored, so k costs no memory. Rewards come from the
environment's `compute_reward`. Beyond the paper: if a new goal ends the episode
(`compute_terminated`), it ends the relabelled transition, too.
`draws`: Manela and Biess 2021, "Bias-reduced hindsight experience replay with virtual goal
prioritization", Filtered-HER. As long as the object of a task does not move, all later achieved
goals equal its position and require no action, so such transitions do not show how to reach a goal.
Here, other transitions are drawn in their place, so that batches keep their size.
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
MISSING: Final = -1  # placeholder for the number of an overwritten transition

# Bytes per transition: its step, its number in the episode's list, and a fraction of the episode's
# Python objects.
EPISODES_NBYTES: Final = 40


class StoredEpisodes:
    """The stored transitions of each episode, ordered by step."""

    def __init__(self, episode_of: NDArray[np.int64]) -> None:
        self.episode_of = episode_of  # [slots]  column of the buffer
        self.step_of = np.zeros(len(episode_of), np.int64)  # [slots]  index within the episode
        self.rows: dict[int, array[int]] = {}  # transitions by episode, even overwritten ones

    @property
    def nbytes(self) -> int:
        return len(self.episode_of) * EPISODES_NBYTES

    def append(self, number: int, slot: int, episode: int) -> None:
        """Adds a transition to its episode."""
        rows = self.rows.setdefault(episode, array("q"))
        self.step_of[slot] = len(rows)
        rows.append(number)

    def drop(self, slot: int, episode: int) -> None:
        """Removes the episode if the transition in this slot, soon overwritten, is its last."""
        if self.step_of[slot] + 1 == len(self.rows[episode]):
            del self.rows[episode]

    def load(self, step_of: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Restores the episodes of the transitions in the first M slots. [M], [M]"""
        self.step_of[: len(numbers)] = step_of
        self.rows = {}
        for slot in np.argsort(numbers).tolist():
            dropped = [MISSING] * int(step_of[slot])
            rows = self.rows.setdefault(int(self.episode_of[slot]), array("q", dropped))
            rows.append(int(numbers[slot]))


class HindsightReplayBuffer(UniformReplayBuffer):
    """Uniform replay in which k of k + 1 sampled transitions get a goal achieved in their episode.

    Only the learner's thread calls it.
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
        self._loaded: NDArray[np.int64] | None = None  # [M]  steps of the transitions to restore

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
                "replay_buffer=hindsight needs the episode of each transition: the step processor "
                'must provide `Transitions.extras["episode"]` (see '
                "border_cli/step_processor/n_step.py)"
            )
        numbers = episodes.tolist()
        for i, episode in enumerate(numbers):
            slot = (ring.position + i) % ring.capacity
            if ring.size + i >= ring.capacity:
                oldest = i - ring.capacity  # overwritten; < 0 if from an earlier push
                stored.drop(slot, numbers[oldest] if oldest >= 0 else int(stored.episode_of[slot]))
            stored.append(ring.pushed + i, slot, episode)
        super().push(transitions)

    def sample(self, batch_size: int) -> Batch:
        """Samples with replacement and weight 1; raises `RunFailed` if the buffer is empty."""
        index = self._draw(batch_size)  # [B]
        relabel_u, goal_u = self._rng.random((2, batch_size))
        # The paper stores each transition once with its original goal and k times with other goals.
        (chosen,) = np.nonzero(relabel_u * (self.config.k + 1) < self.config.k)  # [R]
        goals = self._draw_goals(index, chosen, goal_u[chosen]) if len(chosen) else None
        batch = self.ring.gather(index)
        if goals is not None:
            self._relabel(batch, chosen, goals)
        return batch

    def _draw_goals(
        self, index: NDArray[np.int64], chosen: NDArray[np.intp], goal_u: NDArray[np.float64]
    ) -> NDArray[Any]:
        """Draws new goals for the transitions `chosen`; in `index`, replaces transitions whose new
        goal had already been achieved. [B], [R], [R] -> [R, …]"""
        goals: NDArray[Any] = self._achieved[self._outcomes(index[chosen], goal_u)]
        pending = np.arange(len(chosen))  # positions in `chosen` that may need another draw
        for _ in range(self.config.draws - 1):
            pending = pending[self._were_achieved(index[chosen[pending]], goals[pending])]
            if not len(pending):
                break
            index[chosen[pending]] = self._rng.integers(self.ring.stored, size=len(pending))
            goal_u = self._rng.random(len(pending))
            goals[pending] = self._achieved[self._outcomes(index[chosen[pending]], goal_u)]
        return goals

    def _were_achieved(self, slots: NDArray[np.int64], goals: NDArray[Any]) -> NDArray[np.bool_]:
        """Returns whether the outcome before a step already earns the goal's reward. [R], [R, …] ->
        [R]"""
        outcomes = np.concatenate([self._achieved_before[slots], goals])
        rewards = self._goal_rewards.rewards(outcomes, np.concatenate([goals, goals]))
        achieved: NDArray[np.bool_] = rewards[: len(goals)] == rewards[len(goals) :]
        return achieved

    def _relabel(self, batch: Batch, chosen: NDArray[np.intp], goals: NDArray[Any]) -> None:
        """Replaces goals, rewards and discounts of the transitions `chosen`. [R], [R, …]"""
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

    def _outcomes(self, slots: NDArray[np.int64], goal_u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the slots whose outcomes become the new goals, given `goal_u` in [0, 1). [R]"""
        stored = self._episodes
        episodes = [stored.rows[episode] for episode in stored.episode_of[slots].tolist()]
        length = np.array([len(members) for members in episodes])  # [R]
        match self.config.strategy:
            case Strategy.future:  # the outcome of the transition itself, or a later one
                low = stored.step_of[slots]
            case Strategy.episode:
                oldest = self.ring.pushed - self.ring.size
                low = np.array([bisect_left(members, oldest) for members in episodes])
            case Strategy.final:
                low = length - 1
        steps = low + (goal_u * (length - low)).astype(np.int64)  # [R]
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

    def _finish_restore(self) -> None:
        assert self._loaded is not None
        ring = self.ring
        numbers = ring.pushed - 1 - (ring.position - 1 - np.arange(ring.size)) % ring.capacity
        self._episodes.load(self._loaded, numbers)
        self._loaded = None
