"""Actor managers built from fakes, and helpers to run them."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import ActorFactory, copy_experience
from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.actor_manager.lockstep_process import LockstepProcesses
from border_cli.actor_manager.lockstep_thread import LockstepThreads
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

LOCKSTEP_THREAD, LOCKSTEP_PROCESS = "lockstep_thread", "lockstep_process"
LOCKSTEP = LOCKSTEP_THREAD, LOCKSTEP_PROCESS


def snapshot(opt_steps: int = 0, *, warm_up: bool = False) -> Snapshot:
    return Snapshot(opt_steps=opt_steps, env_steps=0, warm_up=warm_up, arrays={})


def env_seed(actor_id: int, incarnation: int = 0) -> int:
    """The seed of an incarnation's environments, in managers that `Built` creates."""
    return derived_seed(0, Branch.ACTOR, actor_id, incarnation, ActorStream.ENV)


class DrawingPolicy(FakePolicy):
    """A policy with random actions, drawn from the generator it is given."""

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
    """Creates policies with random actions, which repeat only if their state is restored."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        del exploration
        return DrawingPolicy(rng)


class Built:
    """An actor manager and its parts; loads `state` if one is given.

    `lives` and `folder` script the environments of any backend. `make_env` works only with
    backends whose actors run in this process.
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
        step_processor: Callable[[], StepProcessor] = OneStep,
        state: State | None = None,
        returns_gamma: float | None = None,
        extras: Sequence[Column] = (),
        **settings: Any,
    ) -> None:
        self.envs = CountingEnvFactory(make_env or (lambda _: CountingEnv(num_envs=num_envs)))
        self.policies = FakePolicyFactory()
        factory: EnvFactory = self.envs
        if backend in ("process", "ray", LOCKSTEP_PROCESS):
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
            num_envs=num_envs,
        )
        self.manager = _manager(backend, make_actor, clock or MonotonicClock(), settings)
        if state is not None:
            self.manager.load_state_dict(copy.deepcopy(state))  # as if read from a file


def _manager(
    backend: str,
    make_actor: ActorFactory,
    clock: Clock,
    settings: dict[str, Any],
) -> ActorManager:
    if backend == "serial":
        serial = SerialConfig(**settings)
        return SerialActorManager(serial, make_actor=make_actor, clock=clock)
    if backend == "process":
        process = ProcessConfig(
            **{"nice": 0} | settings
        )  # a higher value would slow the tests on a busy machine
        return ProcessActorManager(process, make_actor=make_actor, clock=clock)
    if backend == LOCKSTEP_PROCESS:
        process = ProcessConfig(**{"nice": 0} | settings)
        return LockstepProcesses(process, make_actor=make_actor, clock=clock)
    if backend == LOCKSTEP_THREAD:
        return LockstepThreads(ThreadConfig(**settings), make_actor=make_actor, clock=clock)
    if backend == "ray":
        return RayActorManager(RayConfig(**settings), make_actor=make_actor, clock=clock)
    return ThreadActorManager(ThreadConfig(**settings), make_actor=make_actor, clock=clock)


def receive(manager: ActorManager, samples: int) -> list[Experience]:
    """Receives until at least `samples` samples have arrived; returns copies that stay valid."""
    arrived: list[Experience] = []
    while count(arrived) < samples:
        arrived += [kept(message) for message in manager.receive(5.0)]
    return arrived


def kept(message: Experience) -> Experience:
    """Returns a copy of the message that owns its memory."""
    return copy_experience(message)


def count(messages: list[Experience]) -> int:
    return sum(len(message.transitions) for message in messages)


def start(manager: ActorManager, samples: float = math.inf) -> None:
    manager.publish(snapshot())
    manager.permit(samples)


def receive_until_crash(built: Built, samples: float = math.inf) -> None:
    """Lets the actors collect up to `samples` samples and receives until an error is raised."""
    with built.manager as manager:
        start(manager, samples)
        while True:
            manager.receive(5.0)


def until(condition: Callable[[], bool], deadline_s: float = 120.0) -> None:
    pause, end_s = threading.Event(), time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "the deadline has passed"
        pause.wait(0.005)


def accounted(manager: ActorManager, arrived: list[Experience]) -> None:
    """Asserts that every sample collected was either received or counted as lost."""
    stats = manager.stats()
    assert count(arrived) == sum(actor.samples for actor in stats)
    assert sum(actor.env_steps for actor in stats) == sum(
        actor.samples + actor.lost_samples for actor in stats
    )
