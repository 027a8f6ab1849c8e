"""Settings of the actor managers."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.core.config import ActorManagerConfig, StartMethod
from border_cli.core.settings import setting
from border_cli.registry import ACTOR_MANAGERS


@dataclass(kw_only=True)
class SerialConfig(ActorManagerConfig):
    """One actor after another in the learner's thread: for debugging and exact repetition."""


@dataclass(kw_only=True)
class ThreadConfig(ActorManagerConfig):
    """One thread per actor."""

    join_timeout_s: float = setting(5.0, "seconds an actor may take to stop", above=0)


@dataclass(kw_only=True)
class ProcessConfig(ActorManagerConfig):
    """One supervised process per actor: for environments that cost CPU."""

    start_method: StartMethod = setting(
        StartMethod.auto, "auto: forkserver where there is one, else spawn"
    )
    nice: int = setting(
        10, "how far below the learner actors stand where cores are scarce", low=0, high=19
    )
    join_timeout_s: float = setting(5.0, "seconds an actor may take to stop, then killed", above=0)


ACTOR_MANAGERS.register(
    "serial", SerialConfig, "border_cli.actor_manager.serial:SerialActorManager"
)
ACTOR_MANAGERS.register(
    "thread", ThreadConfig, "border_cli.actor_manager.thread:ThreadActorManager"
)
ACTOR_MANAGERS.register(
    "process", ProcessConfig, "border_cli.actor_manager.process:ProcessActorManager"
)
