"""Settings of the replay buffers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.registry import REPLAY_BUFFERS
from border_cli.settings.base import setting
from border_cli.settings.run import ReplayBufferConfig
from border_cli.settings.schedule import UPDATES, Scheduled


class Normalize(StrEnum):
    """The set of weights whose maximum divides the importance weights."""

    batch = "batch"
    buffer = "buffer"


@dataclass(kw_only=True)
class RingConfig(ReplayBufferConfig):
    """Settings of the replay buffers that can store frames once and contain a data set."""

    frames: bool | None = setting(
        None,
        "stores each frame of stacked images (uint8 [frames, height, width]) once instead of in "
        "every stack that contains it; null enables this only if env.frame_stack, a "
        "FrameStackObservation or the environment (stacks_frames) stacks the images. Sampled "
        "transitions are the same",
        takes_memory=True,
    )
    dataset: str | None = setting(
        None,
        "id of a Minari data set, such as my/cartpole-medium-v0, whose transitions are sampled "
        "in addition to those of the actors and never overwritten; border-record creates one from "
        "a run; null means no data set",
    )
    dataset_share: float | None = setting(
        None,
        "fraction of each batch drawn from the data set, rounded to whole transitions; the rest "
        "comes from the actors (Ball et al. 2023, RLPD: 0.5). null means that both are sampled as "
        "a single set",
        above=0,
        high=1,
    )


def rows_of_share(share: float, batch_size: int) -> int:
    """Returns the number of transitions per batch that come from the data set."""
    return round(share * batch_size)


@dataclass(kw_only=True)
class UniformConfig(RingConfig):
    """Uniform replay: samples all transitions with equal probability."""


@dataclass(kw_only=True)
class PrioritizedConfig(RingConfig):
    """Prioritized replay: samples transitions by TD error (Schaul et al. 2016)."""

    prioritizes: ClassVar[bool] = True

    alpha: float = setting(0.6, "exponent of the priorities; 0 is uniform sampling", low=0, high=1)
    beta: Scheduled = setting(
        {"initial": 0.4, "final": 1.0, "kind": "linear", "steps": 500_000},
        "exponent of the importance weights; without steps, it reaches its final value at the end "
        "of the run (the first of max_opt_steps, max_env_steps and max_time_s)",
        low=0,
        high=1,
        counter=UPDATES,
    )
    normalize: Normalize = setting(
        Normalize.batch,
        "scales the importance weights to a maximum of 1 in the batch, or over the whole buffer",
    )


@dataclass(kw_only=True)
class DatasetConfig(UniformConfig):
    """Uniform replay of a data set; the transitions of the actors, if any, are added to it."""

    capacity: int = setting(
        100_000,
        "maximum number of transitions from actors, in addition to the data set, which is never "
        "overwritten; new ones overwrite the oldest. Unused with trainer=offline",
        low=1,
    )


class Strategy(StrEnum):
    """The part of its episode from which a transition gets its new goal."""

    future = "future"
    final = "final"
    episode = "episode"


@dataclass(kw_only=True)
class HindsightConfig(ReplayBufferConfig):
    """Hindsight experience replay for environments with goals (Andrychowicz et al. 2017)."""

    one_step: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True

    strategy: Strategy = setting(
        Strategy.future,
        "source of the new goal of a sampled transition: a goal achieved in the same step or later "
        "in the episode (future), in the last stored step of the episode (final), or anywhere in "
        "the episode (episode)",
    )
    k: int = setting(
        4,
        "relabeled transitions per original one: k of k + 1 sampled transitions get a new goal; 0 "
        "means none",
        low=0,
    )
    draws: int = setting(
        1,
        "maximum number of attempts to draw a transition whose new goal had not already been "
        "achieved before the step (Manela and Biess 2021); 1 accepts any goal",
        low=1,
    )


@dataclass(kw_only=True)
class RolloutConfig(ReplayBufferConfig):
    """Rollouts of the current policy, used for a few epochs and then discarded."""

    on_policy: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True

    n_steps: int = setting(
        2_048, "env steps of each environment per rollout", low=1, takes_memory=True
    )
    n_epochs: int = setting(10, "passes over each rollout, in shuffled minibatches", low=1)
    capacity: int = setting(1, "unused: a rollout contains n_steps of each environment", low=1)


REPLAY_BUFFERS.register(
    "hindsight", HindsightConfig, "border_cli.replay_buffer.hindsight:HindsightReplayBuffer"
)
REPLAY_BUFFERS.register("rollout", RolloutConfig, "border_cli.replay_buffer.rollout:RolloutBuffer")
REPLAY_BUFFERS.register(
    "uniform", UniformConfig, "border_cli.replay_buffer.uniform:UniformReplayBuffer"
)
REPLAY_BUFFERS.register(
    "dataset", DatasetConfig, "border_cli.replay_buffer.uniform:UniformReplayBuffer"
)
REPLAY_BUFFERS.register(
    "prioritized", PrioritizedConfig, "border_cli.replay_buffer.prioritized:PrioritizedReplayBuffer"
)
