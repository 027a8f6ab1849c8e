"""Settings of the actor managers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.registry import ACTOR_MANAGERS
from border_cli.settings.base import LONGEST_WAIT_S, setting
from border_cli.settings.run import ActorManagerConfig, StartMethod


@dataclass(kw_only=True)
class SerialConfig(ActorManagerConfig):
    """Actors take turns in the learner's thread: for debugging and bit-reproducible runs."""

    in_learner_thread: ClassVar[bool] = True


@dataclass(kw_only=True)
class ThreadConfig(ActorManagerConfig):
    """One thread per actor."""

    lockstep: ClassVar[str] = "border_cli.actor_manager.lockstep_thread:LockstepThreads"

    join_timeout_s: float = setting(
        5.0, "seconds to wait for an actor to stop", above=0, high=LONGEST_WAIT_S
    )


@dataclass(kw_only=True)
class ProcessConfig(ActorManagerConfig):
    """One supervised process per actor: for CPU-intensive environments."""

    lockstep: ClassVar[str] = "border_cli.actor_manager.lockstep_process:LockstepProcesses"

    start_method: StartMethod = setting(
        StartMethod.auto, "how processes start; auto: forkserver if available, else spawn"
    )
    nice: int = setting(
        5,
        "niceness added to actor processes, so that the learner gets the CPU first; use 0 if other "
        "programs share the cores and samples matter more than updates",
        low=0,
        high=19,
    )
    join_timeout_s: float = setting(
        5.0,
        "seconds to wait for an actor to stop before killing it",
        above=0,
        high=LONGEST_WAIT_S,
    )


ACTOR_MANAGERS.register(
    "serial", SerialConfig, "border_cli.actor_manager.serial:SerialActorManager"
)
ACTOR_MANAGERS.register(
    "thread", ThreadConfig, "border_cli.actor_manager.thread:ThreadActorManager"
)
ACTOR_MANAGERS.register(
    "process", ProcessConfig, "border_cli.actor_manager.process:ProcessActorManager"
)
