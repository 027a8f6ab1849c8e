"""Normalisation of observations and rewards by running statistics.

Observation statistics cover all transitions received, and reach the actors in snapshots.
`normalize_reward` divides rewards by the standard deviation of the running discounted return.
Actors compute the return from single-step rewards (`core/returns.py`) and send its count, mean and
squared deviations with each message. The returns of a data set are processed before the first
update. Only PPO clips the result (`clip_reward`). Actors compute no returns unless
`AgentConfig.needs_returns` is true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.returns import Moments
from border_cli.core.types import Transitions
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import Backend
from border_cli.nn.batch import TensorBatch
from border_cli.nn.encoding import encode, measured_columns

EPSILON = 1e-8  # added to variances, so that a constant column is divided by 1e-4
LEAST_SHARE = 0.1  # smallest reward divisor, as a fraction of the root mean square of returns


class RunningStatistics:
    """Running mean and standard deviation of the columns, in float64.

    Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", formula 1.5.
    """

    def __init__(self, columns: int) -> None:
        self.count = np.zeros(())  # []  number of rows
        self.mean = np.zeros(columns)  # [columns]
        self.squares = np.zeros(columns)  # [columns]  sum of squared deviations from the mean

    def update(self, rows: NDArray[Any]) -> None:
        """Updates the statistics with rows. [M, columns]"""
        if not len(rows):
            return
        rows = rows.astype(np.float64)
        mean = rows.mean(0)
        self.merge(len(rows), mean, ((rows - mean) ** 2).sum(0))

    def merge(
        self, count: int, mean: NDArray[np.float64] | float, squares: NDArray[np.float64] | float
    ) -> None:
        """Merges the statistics of at least one additional row. [columns]"""
        total = self.count + count
        delta = mean - self.mean
        self.squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count += count

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation; 1 if there are fewer than two rows. [columns]"""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.sqrt(self.squares / self.count + EPSILON)


def reward_divisor(returns: RunningStatistics) -> float:
    """Returns the standard deviation of the running discounted returns, with a lower bound.

    Gymnasium's NormalizeReward has no such bound, and fails if returns hardly vary. With a reward
    of 1 at every step, the deviation is 0 for gamma=0 or one-step episodes, and approaches 0 in an
    endless episode. The bound is a tenth of the root mean square, so that constant returns become
    10 at most. The result is 1 if there are fewer than two returns or if all returns are 0.
    """
    count, mean, squares = (array.item() for array in vars(returns).values())
    if count < 2:
        return 1.0
    variance = squares / count
    mean_square = mean**2 + variance
    if mean_square == 0:
        return 1.0
    return max(math.sqrt(variance + EPSILON), LEAST_SHARE * math.sqrt(mean_square))


class Normalization:
    """Encodes observations as features and scales rewards. Owns the running statistics.

    Rewards are divided but never shifted, because a shift changes the optimal policy if episodes
    can end. An n-step reward is divided like each of its single-step rewards. Called by the learner
    thread only.
    """

    def __init__(
        self, config: LearnerConfig, architecture: Architecture, backend: Backend, *, env: str
    ) -> None:
        """`env` is the id of the environment, for error messages."""
        self.statistics: dict[str, RunningStatistics] = {}
        self._architecture = architecture
        self._scales_rewards = config.normalize_reward
        self._divisor = 1.0
        has_floats = architecture.rows is not None and measured_columns(architecture.rows).any()
        normalize_obs = config.normalize_obs
        if normalize_obs is None:
            normalize_obs = bool(has_floats) and not architecture.images
        if normalize_obs:
            if not has_floats:
                raise ConfigError(
                    "agent.normalize_obs must be false if no part of the observation is a float. "
                    f"env.id={env} has only integers and pixels, which are scaled by their bounds; "
                    "got True"
                )
            self.statistics["obs"] = RunningStatistics(architecture.row_size)
        if config.normalize_reward:
            self.statistics["returns"] = RunningStatistics(1)
        self.features = backend.make_features(normalize=normalize_obs)
        self.changes_batches = self._scales_rewards or not self.features.changes_nothing

    def update_obs(self, transitions: Transitions) -> None:
        """Updates the observation statistics. [M]"""
        if "obs" in self.statistics:
            assert self._architecture.rows is not None
            rows = encode(self._architecture.rows, transitions.obs)  # [M, row_size]
            self.statistics["obs"].update(rows)
            self.refresh()

    def update_returns(self, returns: Moments) -> None:
        """Updates the statistics of the running discounted returns."""
        if "returns" in self.statistics:
            self.statistics["returns"].merge(returns.count, returns.mean, returns.squares)
            self._divisor = reward_divisor(self.statistics["returns"])

    def state_dict(self) -> dict[str, NDArray[np.float64]]:
        """Returns the arrays of the statistics themselves, not copies."""
        return {
            f"{name}.{key}": array
            for name, statistics in self.statistics.items()
            for key, array in vars(statistics).items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the statistics from `state_dict`. Raises ValueError if the sizes differ."""
        for name, array in self.state_dict().items():
            array[...] = np.reshape(state[name], array.shape)  # never broadcasts
        self.refresh()

    def refresh(self) -> None:
        """Applies the current statistics to the features and the reward divisor."""
        if "obs" in self.statistics:
            obs = self.statistics["obs"]
            self.features.refresh(obs.mean, obs.std)
        if "returns" in self.statistics:
            self._divisor = reward_divisor(self.statistics["returns"])

    def scale_rewards(self, reward: NDArray[np.float32]) -> NDArray[np.float32]:
        """Divides rewards if `normalize_reward` is set. [M]"""
        return reward / np.float32(self._divisor) if self._scales_rewards else reward

    def __call__(self, batch: TensorBatch) -> TensorBatch:
        """Returns the batch with features as observations, and with scaled rewards."""
        if not self.features.changes_nothing:
            obs, next_obs = self.features(batch.obs), self.features(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        if self._scales_rewards:
            batch = batch._replace(reward=batch.reward / self._divisor)
        return batch
