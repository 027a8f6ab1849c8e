"""Settings of the trainers."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.core.config import TrainerConfig
from border_cli.registry import TRAINERS


@dataclass(kw_only=True)
class AsyncConfig(TrainerConfig):
    """Actors sample while the learner learns."""


@dataclass(kw_only=True)
class SyncConfig(TrainerConfig):
    """Actors and learner take turns in one thread, always with the newest weights."""


TRAINERS.register("async", AsyncConfig, "border_cli.trainer.async_:AsyncTrainer")
TRAINERS.register("sync", SyncConfig, "border_cli.trainer.sync:SyncTrainer")
