"""Settings of the trainers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.registry import TRAINERS
from border_cli.settings.base import setting
from border_cli.settings.run import INTERVALS, ReplayRatioConfig, TrainerConfig


@dataclass(kw_only=True)
class AsyncConfig(ReplayRatioConfig):
    """Actors collect transitions while the learner updates the agent."""


@dataclass(kw_only=True)
class SyncConfig(ReplayRatioConfig):
    """Actors and learner alternate; actors always use the newest weights."""

    synchronous: ClassVar[bool] = True


@dataclass(kw_only=True)
class OfflineConfig(TrainerConfig):
    """Learns from a data set only, without actors."""

    offline: ClassVar[bool] = True

    max_env_steps: int | None = setting(
        None, "unused: there are no env steps; set another limit", low=1
    )
    sync_interval: int = setting(20, "unused: there are no actors", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in INTERVALS:
            value = getattr(self, f"{name}_interval_env_steps")
            if value is not None:
                allowed = "must be null with trainer=offline, which has no env steps"
                self.refuse(f"{name}_interval_env_steps", value, allowed)
        other_limits = (self.max_opt_steps, self.max_time_s, self.stop_at_score, self.patience)
        if self.max_env_steps is not None and all(limit is None for limit in other_limits):
            self.refuse(
                "max_env_steps",
                self.max_env_steps,
                "cannot be the only limit with trainer=offline, which has no env steps: set "
                "trainer.max_opt_steps",
            )


TRAINERS.register("async", AsyncConfig, "border_cli.trainer.online:AsyncTrainer")
TRAINERS.register("offline", OfflineConfig, "border_cli.trainer.trainer:OfflineTrainer")
TRAINERS.register("sync", SyncConfig, "border_cli.trainer.online:SyncTrainer")
