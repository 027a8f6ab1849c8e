"""Observations and rewards as updates take them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from border_cli.agent.settings import LearnerConfig
from border_cli.core.errors import ConfigError
from border_cli.core.types import Transitions
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features
from border_cli.nn.numpy_encoder import encode
from border_cli.nn.numpy_features import measured_columns
from border_cli.nn.statistics import RunningStatistics
from border_cli.nn.tensor_batch import TensorBatch


class Normalising:
    """Owns how observations become features, and the statistics of all that was sampled; the
    learner's thread calls it."""

    def __init__(
        self, config: LearnerConfig, architecture: Architecture, device: torch.device, *, env: str
    ) -> None:
        """`env` is the environment's name, for the refusal of what cannot be normalised."""
        self.statistics: dict[str, RunningStatistics] = {}  # on the CPU, whatever the device
        self._architecture = architecture
        self._reward_std = 1.0
        if config.normalize_obs:
            refuse_nothing_measured(architecture, env)
            self.statistics["obs"] = RunningStatistics(architecture.row_size)
        if config.normalize_reward:
            self.statistics["reward"] = RunningStatistics(1)
        self.features = Features(architecture, normalize=config.normalize_obs).to(device)

    @property
    def part(self) -> nn.Module | None:
        """What a checkpoint holds; None where nothing is normalised."""
        return nn.ModuleDict(self.statistics) if self.statistics else None

    def see(self, transitions: Transitions) -> None:
        """Takes in rows. [M]"""
        if "obs" in self.statistics:
            assert self._architecture.rows is not None
            rows = encode(self._architecture.rows, transitions.obs)  # [M, row_size]
            self.statistics["obs"].see(torch.from_numpy(rows))
        if "reward" in self.statistics:
            self.statistics["reward"].see(torch.from_numpy(transitions.reward)[:, None])
        if self.statistics:
            self.follow()

    def follow(self) -> None:
        """Normalises by the statistics as they are now."""
        if "obs" in self.statistics:
            self.features.follow(self.statistics["obs"])
        if "reward" in self.statistics:
            self._reward_std = float(self.statistics["reward"].std)

    def __call__(self, batch: TensorBatch) -> TensorBatch:
        """The batch with features for observations, and rewards of deviation 1 where asked for."""
        if not self.features.changes_nothing:
            obs, next_obs = self.features(batch.obs), self.features(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        if "reward" in self.statistics:
            reward: Tensor = batch.reward / self._reward_std
            batch = batch._replace(reward=reward)
        return batch


def refuse_nothing_measured(architecture: Architecture, env: str) -> None:
    """Raises ConfigError where no column of an observation would be normalised."""
    if architecture.rows is None or not measured_columns(architecture.rows).any():
        raise ConfigError(
            "agent.normalize_obs must be false where no part of an observation is of real numbers: "
            f"integers and pixels go by their bounds, and env.id={env} has nothing else; got True"
        )
