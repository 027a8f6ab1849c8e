"""Managers whose actors number their rows, and what must hold of the rows they were cut into."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fakes import FakePolicyFactory, OneStep
from managers import kept
from remote_fakes import DELAY, CalmEnvFactory, Delayed, Life, ScriptedEnvFactory

from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.actor_manager.factory import ActorFactory
from border_cli.actor_manager.lane import Lane
from border_cli.actor_manager.process import ProcessActorManager
from border_cli.actor_manager.serial import SerialActorManager
from border_cli.actor_manager.thread import ThreadActorManager
from border_cli.core.interfaces import ActorManager, EnvFactory
from border_cli.core.timing import MonotonicClock
from border_cli.core.types import Experience, State

SHAPES = [
    {"num_actors": 3, "n_buffer": 1},
    {"num_actors": 2, "n_buffer": 7},
    {"num_actors": 2, "n_buffer": 4, "num_envs": 3},  # whole rounds do not fill a message
    {"num_actors": 1, "n_buffer": 2, "num_envs": 20},  # a round is larger than the ring
    {"num_actors": 2, "n_buffer": 1_000},  # nothing is sent unless it is asked for
]


def manager_of(
    backend: str,
    *,
    state: State | None = None,
    folder: Path | None = None,
    lives: Sequence[Life] = (),
    num_envs: int = 1,
    delayed: bool = False,
    **settings: Any,
) -> ActorManager:
    """One that goes on from the state, as a file would have kept it."""
    factory: EnvFactory = CalmEnvFactory(num_envs=num_envs)
    if folder is not None:
        factory = ScriptedEnvFactory(folder=folder, lives=tuple(lives), num_envs=num_envs)
    make_actor = ActorFactory(
        seed=0,
        env_factory=factory,
        policy_factory=FakePolicyFactory(),
        make_step_processor=Delayed if delayed else OneStep,
    )
    clock = MonotonicClock()
    manager: ActorManager
    if backend == "process":
        config = ProcessConfig(**{"nice": 0} | settings)
        manager = ProcessActorManager(config, make_actor=make_actor, clock=clock)
    elif backend == "thread":
        manager = ThreadActorManager(ThreadConfig(**settings), make_actor=make_actor, clock=clock)
    else:
        manager = SerialActorManager(SerialConfig(**settings), make_actor=make_actor, clock=clock)
    if state is not None:
        manager.load_state_dict(pickle.loads(pickle.dumps(state)))
    return manager


class Numbers:
    """The rows of each actor, by the numbers that its environment gave them."""

    def __init__(self, num_actors: int, num_envs: int = 1) -> None:
        self._rows: list[list[int]] = [[] for _ in range(num_actors)]
        self._num_envs = num_envs

    def add(self, arrived: Sequence[Experience]) -> int:
        """Takes what arrived, which may be overwritten afterwards; returns its rows."""
        for each in map(kept, arrived):
            assert isinstance(each.transitions.obs, np.ndarray)
            if len(each.transitions):
                self._rows[each.actor_id] += each.transitions.obs[:, 0].astype(int).tolist()
        return sum(len(each.transitions) for each in arrived)

    def of(self, actor_id: int) -> list[int]:
        """Its rows in the order in which they arrived, those of its first environment only."""
        return self._rows[actor_id][:: self._num_envs]

    @property
    def total(self) -> int:
        return sum(map(len, self._rows))

    def assert_contiguous(self) -> None:
        """Nothing lost, nothing doubled, nothing out of order."""
        for rows in self._rows:
            expected = np.repeat(np.arange(len(rows) // self._num_envs), self._num_envs)
            np.testing.assert_array_equal(rows, expected)

    def assert_fits(self, state: State, *, delayed: bool = False) -> int:
        """The actors stand right behind what arrived; returns how many of them are known."""
        known = [each for each in state["actors"] if each["actor"] is not None]
        for each in known:
            count = each["actor"]["env"]["count"] - (DELAY if delayed else 0)
            rows = self.of(each["actor_id"])
            # One that has not sent a row yet: the last one is of an earlier life, if of any.
            assert count <= 0 or rows[-1] == count - 1
        return len(known)


def lanes_of(manager: ActorManager) -> list[Lane]:
    """Those of a manager of processes."""
    assert isinstance(manager, ProcessActorManager)
    return manager._lanes
