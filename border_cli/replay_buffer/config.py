"""Settings of the replay buffers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.core.config import ReplayBufferConfig
from border_cli.core.settings import setting
from border_cli.registry import REPLAY_BUFFERS


class Normalize(StrEnum):
    """What the importance weights are divided by."""

    batch = "batch"
    buffer = "buffer"


@dataclass(kw_only=True)
class UniformConfig(ReplayBufferConfig):
    """Every row equally likely."""


@dataclass(kw_only=True)
class PrioritizedConfig(ReplayBufferConfig):
    """Rows by their TD error (Schaul et al. 2016)."""

    prioritizes: ClassVar[bool] = True

    alpha: float = setting(0.6, "exponent of the priorities; 0 is uniform", low=0, high=1)
    beta_0: float = setting(0.4, "first exponent of the importance weights", low=0, high=1)
    beta_final: float = setting(1.0, "last exponent of the importance weights", low=0, high=1)
    n_opts_final: int | None = setting(
        500_000,
        "optimisation steps over which beta moves to beta_final, linearly; null: it arrives at "
        "the end of the run, whichever of max_opt_steps, max_env_steps and max_time_s is nearest",
        low=1,
    )
    normalize: Normalize = setting(
        Normalize.batch, "largest weight is 1 in the batch, or over the whole buffer"
    )


@dataclass(kw_only=True)
class DatasetConfig(ReplayBufferConfig):
    """Rows of a Minari data set, and what actors add to them; every row equally likely."""

    dataset: str | None = setting(
        None, "which data set, such as my/cartpole-medium-v0; border-record makes one of a run"
    )
    capacity: int = setting(
        100_000,
        "rows of actors that fit beside those of the data set, which stay; the oldest make room. "
        "With trainer=offline there are none",
        low=1,
    )


REPLAY_BUFFERS.register(
    "uniform", UniformConfig, "border_cli.replay_buffer.uniform:UniformReplayBuffer"
)
REPLAY_BUFFERS.register(
    "dataset", DatasetConfig, "border_cli.replay_buffer.dataset:DatasetReplayBuffer"
)
REPLAY_BUFFERS.register(
    "prioritized", PrioritizedConfig, "border_cli.replay_buffer.prioritized:PrioritizedReplayBuffer"
)
