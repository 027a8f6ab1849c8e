"""Normalised observations and rewards, and the running statistics that they go by.

Observation statistics cover all received transitions and reach actors in the snapshot.
`normalize_reward` divides by the standard deviation of the running discounted returns, like
Gymnasium's `NormalizeReward`: G = r + gamma G in each environment of each actor, 0 at the start of
an episode. N-step transitions do not contain the rewards of single steps, so actors compute G
(`core/returns.py`) and send count, mean and squared deviations with each message. A data set is
processed completely before the first update. The divisor is at least a tenth of the root mean
square of G, so that constant rewards are not blown up, and 1 while all G are 0; nothing is clipped.
Unlike in Gymnasium, a truncation also ends an episode, because the next one starts elsewhere, and
the reward of a termination is added to the return before it. All this is skipped if the agent does
not need it (`AgentConfig.needs_returns`).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.returns import Moments
from border_cli.core.types import Transitions
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.encoding import encode, measured_columns
from border_cli.nn.features import Features
from border_cli.nn.tensor_batch import TensorBatch

EPSILON = 1e-8  # of a variance: a column that never changes is divided by 1e-4
LEAST_SHARE = 0.1  # of the root mean square of returns that rewards are divided by at least


class RunningStatistics(nn.Module):
    """Mean and deviation of all rows seen so far, in float64 on the CPU.

    Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", formula 1.5.
    """

    count: Tensor  # []  rows seen
    mean: Tensor  # [columns]
    squares: Tensor  # [columns]  sum of squared deviations from the mean

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(columns, dtype=torch.float64))

    def see(self, rows: Tensor) -> None:
        """Takes in rows. [M, columns]"""
        if not len(rows):
            return
        rows = rows.double()
        mean = rows.mean(0)
        self.merge(len(rows), mean, ((rows - mean) ** 2).sum(0))

    def merge(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Takes in the statistics of so many rows, at least one. [columns] float64"""
        total = self.count + count
        off = mean - self.mean
        self.squares += squares + off**2 * self.count * count / total
        self.mean += off * count / total
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """Population deviation; 1 before there are two rows. [columns]"""
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.squares / self.count + EPSILON).sqrt()


def reward_divisor(returns: RunningStatistics) -> float:
    """The standard deviation of the running discounted returns, as in Gymnasium's NormalizeReward.

    The deviation alone fails where returns hardly vary. With a reward of 1 at every step it is 0
    for gamma=0 or episodes of one step, and it falls to 0 in an episode that never ends. So the
    divisor is at least a tenth of the root mean square: a constant return becomes 10 at most.
    It is 1 before there are two returns and while all of them are 0, where only epsilon is left.
    """
    count, mean, squares = map(float, (returns.count, returns.mean, returns.squares))
    if count < 2:
        return 1.0
    variance = squares / count
    mean_square = mean**2 + variance
    if mean_square == 0:
        return 1.0
    return max(math.sqrt(variance + EPSILON), LEAST_SHARE * math.sqrt(mean_square))


class Normalization:
    """Owns how observations become features, and the statistics of all that was sampled; the
    learner's thread calls it.

    Rewards are divided and never shifted: to shift them would change what is best where episodes
    end. A row of n steps is divided as each of its rewards would be.
    """

    def __init__(
        self, config: LearnerConfig, architecture: Architecture, device: torch.device, *, env: str
    ) -> None:
        """`env` is the environment's name, for the refusal of what cannot be normalised."""
        self.statistics: dict[str, RunningStatistics] = {}  # on the CPU, whatever the device
        self._architecture = architecture
        self._divides = config.normalize_reward
        self._divisor = 1.0
        if config.normalize_obs:
            if architecture.rows is None or not measured_columns(architecture.rows).any():
                raise ConfigError(
                    "agent.normalize_obs must be false if no part of the observation is a float: "
                    f"integers and pixels are scaled by their bounds, and env.id={env} has nothing "
                    "else; got True"
                )
            self.statistics["obs"] = RunningStatistics(architecture.row_size)
        if config.normalize_reward:
            self.statistics["returns"] = RunningStatistics(1)
        self.features = Features(architecture, normalize=config.normalize_obs).to(device)
        self.changes_batches = self._divides or not self.features.changes_nothing

    def see(self, transitions: Transitions) -> None:
        """Takes in rows. [M]"""
        if "obs" in self.statistics:
            assert self._architecture.rows is not None
            rows = encode(self._architecture.rows, transitions.obs)  # [M, row_size]
            self.statistics["obs"].see(torch.from_numpy(rows))
            self.refresh()

    def see_returns(self, returns: Moments) -> None:
        """Takes in running discounted returns."""
        if "returns" in self.statistics:
            mean, squares = torch.tensor([[returns.mean], [returns.squares]], dtype=torch.float64)
            self.statistics["returns"].merge(returns.count, mean, squares)
            self._divisor = reward_divisor(self.statistics["returns"])

    def refresh(self) -> None:
        """Normalises by the statistics as they are now."""
        if "obs" in self.statistics:
            self.features.refresh(self.statistics["obs"].mean, self.statistics["obs"].std)
        if "returns" in self.statistics:
            self._divisor = reward_divisor(self.statistics["returns"])

    def divided(self, reward: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rewards divided, if that is configured. [M]"""
        return reward / np.float32(self._divisor) if self._divides else reward

    def __call__(self, batch: TensorBatch) -> TensorBatch:
        """The batch with features for observations, and rewards divided if configured."""
        if not self.features.changes_nothing:
            obs, next_obs = self.features(batch.obs), self.features(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        if self._divides:
            reward: Tensor = batch.reward / self._divisor
            batch = batch._replace(reward=reward)
        return batch
