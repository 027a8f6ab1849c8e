"""Builds actor managers from fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fakes import CountingEnv, CountingEnvFactory, FakePolicyFactory, OneStep

from border_cli.actor_manager.config import SerialConfig, ThreadConfig
from border_cli.actor_manager.factory import ActorFactory
from border_cli.actor_manager.serial import SerialActorManager
from border_cli.actor_manager.thread import ThreadActorManager
from border_cli.core.clock import Clock, MonotonicClock
from border_cli.core.interfaces import ActorManager, Env
from border_cli.core.types import Experience, Snapshot


def snapshot(opt_steps: int = 0, *, warm_up: bool = False) -> Snapshot:
    return Snapshot(opt_steps=opt_steps, env_steps=0, warm_up=warm_up, arrays={})


class Built:
    """A manager and the parts it was made of."""

    def __init__(
        self,
        backend: str,
        make_env: Callable[[int], Env] = lambda _: CountingEnv(),
        *,
        clock: Clock | None = None,
        order: Sequence[int] | None = None,
        **settings: Any,
    ) -> None:
        self.envs = CountingEnvFactory(make_env)
        self.policies = FakePolicyFactory()
        make_actor = ActorFactory(
            seed=0,
            env_factory=self.envs,
            policy_factory=self.policies,
            make_step_processor=OneStep,
        )
        clock = clock or MonotonicClock()
        self.manager: ActorManager
        if backend == "serial":
            config = SerialConfig(**settings)
            self.manager = SerialActorManager(
                config, make_actor=make_actor, clock=clock, order=order
            )
        else:
            self.manager = ThreadActorManager(
                ThreadConfig(**settings), make_actor=make_actor, clock=clock
            )


def receive(manager: ActorManager, samples: int) -> list[Experience]:
    """Receives until so many samples have arrived."""
    arrived: list[Experience] = []
    while sum(len(each.transitions) for each in arrived) < samples:
        arrived += manager.receive(5.0)
    return arrived


def count(messages: list[Experience]) -> int:
    return sum(len(each.transitions) for each in messages)
