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
    """The set of weights whose largest divides the importance weights."""

    batch = "batch"
    buffer = "buffer"


@dataclass(kw_only=True)
class RingConfig(ReplayBufferConfig):
    """Settings of the replay buffers that keep the newest transitions."""

    frames: bool | None = setting(
        None,
        "stores each frame of stacked images (uint8 [frames, height, width]) once, and not in "
        "every stack that it is part of; null: where a FrameStackObservation stacks the images. "
        "Transitions are the same",
        takes_memory=True,
    )
    dataset: str | None = setting(
        None,
        "id of a Minari data set, such as my/cartpole-medium-v0, whose transitions are sampled "
        "besides those of actors and never overwritten; border-record creates one from a run; "
        "null: none",
    )
    dataset_share: float | None = setting(
        None,
        "share of each batch that is drawn from the data set, rounded to whole transitions; the "
        "rest comes from actors (Ball et al. 2023, RLPD: 0.5). null: both are drawn from as one "
        "set",
        above=0,
        high=1,
    )


def rows_of_share(share: float, batch_size: int) -> int:
    """How many transitions of a batch come from the data set."""
    return round(share * batch_size)


@dataclass(kw_only=True)
class UniformConfig(RingConfig):
    """Samples all transitions with equal probability."""


@dataclass(kw_only=True)
class PrioritizedConfig(RingConfig):
    """Prioritized replay: samples transitions by TD error (Schaul et al. 2016)."""

    prioritizes: ClassVar[bool] = True

    alpha: float = setting(0.6, "exponent of the priorities; 0: uniform sampling", low=0, high=1)
    beta: Scheduled = setting(
        {"initial": 0.4, "final": 1.0, "kind": "linear", "steps": 500_000},
        "exponent of the importance weights; without steps it comes to its final value with the "
        "run, at the first of max_opt_steps, max_env_steps and max_time_s",
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
    """Uniform replay that needs a data set: the transitions of actors, if any, are added to it."""

    capacity: int = setting(
        100_000,
        "maximum number of transitions from actors, in addition to the data set, which is never "
        "overwritten; new ones overwrite the oldest. Unused with trainer=offline",
        low=1,
    )


class Strategy(StrEnum):
    """Which of the goals achieved in an episode replace the one it was played for."""

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
        "the goal that replaces that of a sampled transition: one achieved by the transition or "
        "later in its episode (future), at its end so far (final), or anywhere in it (episode)",
    )
    k: int = setting(
        4,
        "replaced goals per original one: k of k + 1 sampled transitions have another goal; 0: "
        "none",
        low=0,
    )
    draws: int = setting(
        1,
        "transitions drawn at most for each replaced goal, until one comes whose new goal was not "
        "achieved before it (Manela and Biess 2021); 1: the first one, whatever its goal",
        low=1,
    )


@dataclass(kw_only=True)
class RolloutConfig(ReplayBufferConfig):
    """The steps of one policy, which learns from them and then drops them."""

    on_policy: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True

    n_steps: int = setting(
        2_048, "env steps of each environment per rollout", low=1, takes_memory=True
    )
    n_epochs: int = setting(10, "passes over each rollout, in shuffled minibatches", low=1)
    capacity: int = setting(1, "unused: a rollout has n_steps of each environment", low=1)


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
