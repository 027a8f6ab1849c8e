"""Builds actor managers from fakes."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import ActorFactory, copied
from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.actor_manager.process import ProcessActorManager
from border_cli.actor_manager.serial import SerialActorManager
from border_cli.actor_manager.thread import ThreadActorManager
from border_cli.actor_manager.weights import ArrayForms
from border_cli.core.interfaces import (
    ActorManager,
    Env,
    EnvFactory,
    Policy,
    PolicyFactory,
    StepProcessor,
)
from border_cli.core.seeding import ActorStream, Branch, derived_seed, restore_generator
from border_cli.core.timing import Clock, MonotonicClock
from border_cli.core.types import Array, Column, Experience, Snapshot, State
from border_cli.ray.config import RayConfig
from border_cli.ray.manager import RayActorManager
from border_cli.settings.run import ActorExploration
from tests.support.fakes import (
    CountingEnv,
    CountingEnvFactory,
    FakePolicy,
    FakePolicyFactory,
    OneStep,
)
from tests.support.scripted_envs import CalmEnvFactory, Life, ScriptedEnvFactory


def snapshot(opt_steps: int = 0, *, warm_up: bool = False) -> Snapshot:
    return Snapshot(opt_steps=opt_steps, env_steps=0, warm_up=warm_up, arrays={})


def env_seed(actor_id: int, incarnation: int = 0) -> int:
    """Of the environments of this incarnation, in the managers that are built here."""
    return derived_seed(0, Branch.ACTOR, actor_id, incarnation, ActorStream.ENV)


class DrawingPolicy(FakePolicy):
    """Draws its actions."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        return self._rng.integers(1_000, size=len(super().act(obs, explore=explore)))

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state["rng"])


class DrawingPolicyFactory:
    """Policies that never act twice in the same way, unless they go on where they were."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        del exploration
        return DrawingPolicy(rng)


class Built:
    """A manager and the parts it was made of; it goes on from `state` where there is one.

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
        step_processor: Callable[[], StepProcessor] = OneStep,
        state: State | None = None,
        returns_gamma: float | None = None,
        extras: Sequence[Column] = (),
        **settings: Any,
    ) -> None:
        self.envs = CountingEnvFactory(make_env or (lambda _: CountingEnv(num_envs=num_envs)))
        self.policies = FakePolicyFactory()
        factory: EnvFactory = self.envs
        if backend in ("process", "ray"):
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
            make_step_processor=step_processor,
            weight_forms=forms or {},
            returns_gamma=returns_gamma,
            extras=extras,
        )
        self.manager = _manager(backend, make_actor, clock or MonotonicClock(), order, settings)
        if state is not None:
            self.manager.load_state_dict(copy.deepcopy(state))  # it may come from a file


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
    if backend == "ray":
        return RayActorManager(RayConfig(**settings), make_actor=make_actor, clock=clock)
    return ThreadActorManager(ThreadConfig(**settings), make_actor=make_actor, clock=clock)


def receive(manager: ActorManager, samples: int) -> list[Experience]:
    """Receives until so many samples have arrived; copies, valid for ever."""
    arrived: list[Experience] = []
    while count(arrived) < samples:
        arrived += [kept(each) for each in manager.receive(5.0)]
    return arrived


def kept(message: Experience) -> Experience:
    """The message in memory of its own."""
    return copied(message)


def count(messages: list[Experience]) -> int:
    return sum(len(each.transitions) for each in messages)


def start(manager: ActorManager, samples: float = math.inf) -> None:
    manager.publish(snapshot())
    manager.permit(samples)


def receive_until_crash(built: Built, samples: float = math.inf) -> None:
    """Runs actors that may make so many samples until that raises."""
    with built.manager as manager:
        start(manager, samples)
        while True:
            manager.receive(5.0)


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
