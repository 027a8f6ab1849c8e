"""Episodes as they are played, to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from border_cli.core.interfaces import Env, Policy
from border_cli.core.seeding import derived_seed
from border_cli.core.stop import StopFlag
from border_cli.core.types import Array, Step
from border_cli.dataset.episodes import RecordedEpisode


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode(RecordedEpisode):
    """One that a policy has just played."""

    seed: int  # that its environment was reset with

    @property
    def score(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))


def play_round(
    env: Env, policy: Policy, seed: int, stop: StopFlag, *, limit: int, explore: bool
) -> list[PlayedEpisode]:
    """One episode in each environment of an evaluation, to its end or to `limit` env steps.

    Raises the reason of `stop` between two of them.
    """
    first = env.reset(seed)
    policy.forget(range(env.num_envs))
    steps: list[Step] = []
    running = np.ones(env.num_envs, np.bool_)  # [N]
    lengths = np.zeros(env.num_envs, np.int64)  # [N]
    obs = first
    while running.any() and len(steps) < limit:
        stop.check()
        step = env.step(policy.act(obs, explore=explore))
        steps.append(step)
        lengths += running
        running &= ~(step.terminated | step.truncated)
        obs = step.act_obs
    return [_of(first, steps[:length], i, seed) for i, length in enumerate(lengths.tolist())]


def _of(first: Array, steps: Sequence[Step], i: int, seed: int) -> PlayedEpisode:
    """The episode of environment i. Without its end it was cut off: by the environment or by us."""
    terminated = np.array([each.terminated[i] for each in steps])  # [T]
    truncated = np.zeros(len(steps), np.bool_)  # [T]
    truncated[-1] = not terminated[-1]
    return PlayedEpisode(
        obs=_column([first, *(each.next_obs for each in steps)], i),
        action=np.stack([each.action[i] for each in steps]),
        reward=np.array([each.reward[i] for each in steps]),
        terminated=terminated,
        truncated=truncated,
        seed=derived_seed(seed, i, 0),  # see `Env.reset`: its first episode
    )


def _column(observations: Sequence[Array], i: int) -> Array:
    """T + 1 times [N, …] -> [T + 1, …]"""
    named = [each for each in observations if isinstance(each, dict)]
    if named:
        return {key: np.stack([each[key][i] for each in named]) for key in named[0]}
    return np.stack([each[i] for each in observations if not isinstance(each, dict)])
