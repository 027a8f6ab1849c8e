"""Builds actor managers from fakes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes import CountingEnv, CountingEnvFactory, FakePolicyFactory, OneStep, copied
from remote_fakes import CalmEnvFactory, Life, ScriptedEnvFactory

from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.actor_manager.factory import ActorFactory
from border_cli.actor_manager.process import ProcessActorManager
from border_cli.actor_manager.serial import SerialActorManager
from border_cli.actor_manager.shared_weights import ArrayForms
from border_cli.actor_manager.thread import ThreadActorManager
from border_cli.core.actors import ActorManager
from border_cli.core.clock import Clock, MonotonicClock
from border_cli.core.interfaces import Env, EnvFactory, PolicyFactory
from border_cli.core.types import Experience, Snapshot


def snapshot(opt_steps: int = 0, *, warm_up: bool = False) -> Snapshot:
    return Snapshot(opt_steps=opt_steps, env_steps=0, warm_up=warm_up, arrays={})


class Built:
    """A manager and the parts it was made of.

    `lives` and `folder` script the environments of any backend; `make_env` is for those whose
    actors live in this process.
    """

    def __init__(
        self,
        backend: str,
        make_env: Callable[[int], Env] | None = None,
        *,
        lives: Sequence[Life] = (),
        folder: Path | None = None,
        num_envs: int = 1,
        policies: PolicyFactory | None = None,
        forms: ArrayForms | None = None,
        clock: Clock | None = None,
        order: Sequence[int] | None = None,
        **settings: Any,
    ) -> None:
        self.envs = CountingEnvFactory(make_env or (lambda _: CountingEnv(num_envs=num_envs)))
        self.policies = FakePolicyFactory()
        factory: EnvFactory = self.envs
        if backend == "process":
            assert make_env is None
            factory = CalmEnvFactory(num_envs=num_envs)
        if folder is not None:
            self.scripted = factory = ScriptedEnvFactory(
                folder=folder, lives=tuple(lives), num_envs=num_envs
            )
        make_actor = ActorFactory(
            seed=0,
            env_factory=factory,
            policy_factory=policies or self.policies,
            make_step_processor=OneStep,
            weight_forms=forms or {},
        )
        self.manager = _manager(backend, make_actor, clock or MonotonicClock(), order, settings)


def _manager(
    backend: str,
    make_actor: ActorFactory,
    clock: Clock,
    order: Sequence[int] | None,
    settings: dict[str, Any],
) -> ActorManager:
    if backend == "serial":
        serial = SerialConfig(**settings)
        return SerialActorManager(serial, make_actor=make_actor, clock=clock, order=order)
    if backend == "process":
        process = ProcessConfig(**{"nice": 0} | settings)  # a busy machine must not slow tests
        return ProcessActorManager(process, make_actor=make_actor, clock=clock)
    return ThreadActorManager(ThreadConfig(**settings), make_actor=make_actor, clock=clock)


def receive(manager: ActorManager, samples: int) -> list[Experience]:
    """Receives until so many samples have arrived; copies, valid for ever."""
    arrived: list[Experience] = []
    while count(arrived) < samples:
        arrived += [kept(each) for each in manager.receive(5.0)]
    return arrived


def kept(message: Experience) -> Experience:
    """The same in memory of its own."""
    return replace(message, transitions=copied(message.transitions))


def count(messages: list[Experience]) -> int:
    return sum(len(each.transitions) for each in messages)


def start(manager: ActorManager, samples: float = math.inf) -> None:
    manager.publish(snapshot())
    manager.permit(samples)


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.005)


def accounted(manager: ActorManager, arrived: list[Experience]) -> None:
    """Every sample that an actor made was received or is counted as lost."""
    stats = manager.stats()
    assert count(arrived) == sum(each.samples for each in stats)
    assert sum(each.env_steps for each in stats) == sum(
        each.samples + each.lost_samples for each in stats
    )
