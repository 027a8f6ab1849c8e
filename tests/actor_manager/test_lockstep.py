"""Actors in lockstep with the learner make what serial actors make, and survive failures."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.core.interfaces import ActorManager
from border_cli.core.rows import columns_of
from border_cli.core.types import Experience, State
from border_cli.errors import ActorCrashed, BadStep, Stalled
from tests.support import leftovers
from tests.support.actor_managers import (
    LOCKSTEP,
    LOCKSTEP_PROCESS,
    LOCKSTEP_THREAD,
    Built,
    DrawingPolicyFactory,
    count,
    kept,
    start,
    until,
)
from tests.support.fakes import CountingEnv, FakeClock
from tests.support.scripted_envs import (
    BUILDING,
    Delayed,
    Life,
    complain,
    dawdle,
    die,
    fail,
    halve_the_smallest,
    hang,
    misbehave,
    vanish,
    wait_for_file,
)

Log = pytest.LogCaptureFixture

SHAPES = [(3, 1), (2, 4), (4, 2)]  # actors, environments of each
DRAWING: dict[str, Any] = {"policies": DrawingPolicyFactory()}


def told(messages: list[Experience]) -> list[Any]:
    """Returns what the messages say, for a comparison."""
    return [
        (
            message.actor_id,
            message.opt_steps,
            message.env_steps,
            message.episodes,
            [(name, column.tolist()) for name, column in columns_of(message.transitions).items()],
        )
        for message in messages
    ]


def played(manager: ActorManager, *, at_once: bool) -> tuple[list[Any], State]:
    """Returns the messages of three limits, and the state at the end."""
    with manager:
        start(manager, 0)
        arrived: list[Experience] = []
        for limit in (24, 25, 64):
            manager.permit(limit)
            while count(arrived) < limit:
                messages = manager.receive_all(60.0) if at_once else manager.receive()
                arrived += map(kept, messages)
        state = manager.state_dict()
    return told(arrived), state


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("actors", "envs"), SHAPES)
@pytest.mark.parametrize("backend", LOCKSTEP)
def test_the_messages_and_the_state_are_those_of_serial_actors(
    backend: str, actors: int, envs: int, at_once: bool
) -> None:
    settings = {"num_actors": actors, "num_envs": envs, "n_buffer": 1, "step_processor": Delayed}
    expected, end = played(Built("serial", **settings, **DRAWING).manager, at_once=False)
    messages, state = played(Built(backend, **settings, **DRAWING).manager, at_once=at_once)
    assert messages == expected
    assert without_times(state) == without_times(end)


def without_times(state: State) -> Any:
    """Returns the state without durations, and with arrays as lists."""
    if isinstance(state, dict):
        left_out = ("seconds", "duration_s")
        return {key: without_times(part) for key, part in state.items() if key not in left_out}
    if isinstance(state, list | tuple):
        return [without_times(part) for part in state]
    return state.tolist() if hasattr(state, "tolist") else state


@pytest.mark.parametrize("backends", [("serial", LOCKSTEP_PROCESS), (LOCKSTEP_THREAD, "serial")])
def test_a_saved_state_continues_in_any_reproducible_manager(backends: tuple[str, str]) -> None:
    settings = {"num_actors": 2, "num_envs": 2, "n_buffer": 1, **DRAWING}

    def collect(backend: str, limit: int, state: State | None = None) -> tuple[list[Any], State]:
        with Built(backend, state=state, **settings).manager as manager:
            start(manager, limit)
            arrived = [kept(message) for message in manager.receive()]
            return told(arrived), manager.state_dict()

    first, state = collect(backends[0], 4)
    second, _ = collect(backends[1], 8, state)
    with Built("serial", **settings).manager as manager:
        start(manager, 8)
        whole = [kept(message) for _ in range(2) for message in manager.receive()]
    assert first + second == told(whole)


@pytest.mark.parametrize("deed", [fail, die, vanish])
def test_a_failed_actor_is_replaced_and_the_counts_add_up(
    deed: Callable[[int], None], tmp_path: Path, caplog: Log
) -> None:
    built = Built(
        LOCKSTEP_PROCESS, lives=[Life(deed=deed, at=5)], folder=tmp_path, num_actors=2, n_buffer=1
    )
    with built.manager as manager:
        start(manager, 30)
        arrived = 0
        while arrived < 30:
            arrived += count(manager.receive_all(60.0))
    failed = [stats for stats in manager.stats() if stats.restarts]
    assert [stats.restarts for stats in failed] == [1]
    assert sum(stats.samples for stats in manager.stats()) == arrived == 30
    for stats in manager.stats():
        assert stats.env_steps == stats.samples + stats.lost_samples
    assert failed[0].lost_samples == 0  # each step is sent at once
    assert "restart 1 of 3" in caplog.text
    assert "this run is no longer bit-reproducible" in caplog.text


def test_an_actor_killed_between_two_rounds_is_replaced() -> None:
    with Built(LOCKSTEP_PROCESS, num_actors=2, n_buffer=1).manager as manager:
        start(manager, 10)
        assert count(manager.receive()) == 2
        before = leftovers.processes()
        os.kill(max(before), signal.SIGKILL)
        (first, second) = manager.state_dict()["actors"]
        assert (first["samples"], second["samples"]) == (1, 1)
        arrived = 2
        while arrived < 10:
            arrived += count(manager.receive())
    assert sum(stats.restarts for stats in manager.stats()) == 1
    assert sum(stats.env_steps for stats in manager.stats()) == 10


def test_no_restart_is_left(tmp_path: Path) -> None:
    built = Built(
        LOCKSTEP_PROCESS, lives=[Life(deed=die, at=2)] * 3, folder=tmp_path, num_actors=1,
        n_buffer=1, max_restarts=1,
    )  # fmt: skip

    def run() -> None:
        with built.manager as manager:
            start(manager, 100)
            while True:
                manager.receive()

    with pytest.raises(ActorCrashed, match=r"SIGKILL.*max_restarts=1"):
        run()


def test_an_invalid_step_ends_the_run_with_its_actor(tmp_path: Path) -> None:
    lives = [Life(deed=misbehave, at=3)]
    built = Built(LOCKSTEP_PROCESS, lives=lives, folder=tmp_path, num_actors=1, n_buffer=1)
    with built.manager as manager:
        start(manager, 10)
        manager.receive()
        manager.receive()
        with pytest.raises(BadStep, match="actor 0, after 2 env steps: it is wrong"):
            manager.receive()


class Interrupting:
    """A thread that requests a restart of actor 0, like the watchdog, once `hangs` has returned and
    the heartbeat of actor 0 is not marked as waiting. Then it calls `asked`."""

    def __init__(
        self,
        manager: ActorManager,
        hangs: Callable[[], object],
        asked: Callable[[], object] = lambda: None,
    ) -> None:
        self.answers: list[bool] = []
        self._part, self._hangs, self._asked = manager.heartbeats()[0], hangs, asked
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Interrupting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        self._hangs()
        # An actor can reach its script before the learner has noted that it waits for this actor.
        deadline_s = time.monotonic() + 30
        until(lambda: self._part.waiting_for is None or time.monotonic() >= deadline_s)
        if self._part.waiting_for is None:
            self.answers = [self._part.restart(), self._part.restart()]
        self._asked()


def test_a_process_that_hangs_is_replaced_and_its_stack_logged(tmp_path: Path, caplog: Log) -> None:
    built = Built(
        LOCKSTEP_PROCESS, lives=[Life(deed=hang, at=3)], folder=tmp_path, num_actors=1, n_buffer=1
    )
    with built.manager as manager:
        start(manager, 10)
        (part,) = manager.heartbeats()
        assert part.waiting_for == "its turn"
        for _ in range(2):
            assert count(manager.receive()) == 1
        with Interrupting(manager, lambda: built.scripted.wait_for("deed")) as interrupting:
            assert manager.receive() == []
        assert interrupting.answers == [True, False]  # one request is enough
        assert "in hang" in caplog.text
        assert "made no step for trainer.stall_timeout_s" in caplog.text
        assert count(manager.receive()) == 1
    (stats,) = manager.stats()
    assert (stats.restarts, stats.samples, stats.lost_samples) == (1, 3, 0)


@pytest.mark.parametrize("backend", LOCKSTEP)
def test_an_actor_that_has_answered_is_not_replaced(backend: str, tmp_path: Path) -> None:
    """The learner waits for the actors in turn. While it waits for one, others look motionless."""
    asked = tmp_path / "asked"
    lives = [Life(deed=partial(wait_for_file, asked), at=at) for at in (5, 3)]
    built = Built(backend, lives=lives, folder=tmp_path, num_actors=2, n_buffer=1)
    with built.manager as manager:
        start(manager, 1)
        assert count(manager.receive()) == 1  # actor 0; from now on actor 1 comes first
        manager.permit(100)
        for _ in range(2):
            manager.receive()
        started = partial(built.scripted.wait_for, "deed")
        with Interrupting(manager, started, asked.touch) as interrupting:
            assert count(manager.receive()) == 2
        assert interrupting.answers == [True, False]
        assert count(manager.receive()) == 2
    assert [stats.restarts for stats in manager.stats()] == [0, 0]


@pytest.mark.parametrize("backend", LOCKSTEP)
def test_actors_flush_denormals_like_the_learner(backend: str, tmp_path: Path) -> None:
    lives = [Life(deed=halve_the_smallest, at=1)]
    with Built(backend, lives=lives, folder=tmp_path, num_actors=1, n_buffer=1).manager as manager:
        start(manager, 1)
        manager.receive()
    [answer] = (tmp_path / "answer-0").read_text().splitlines()
    assert answer == str(np.zeros(9, np.float32))


def test_a_process_that_builds_slowly_shows_that_it_moves(tmp_path: Path) -> None:
    lives = [Life(deed=dawdle, at=BUILDING)]
    built = Built(LOCKSTEP_PROCESS, lives=lives, folder=tmp_path, num_actors=1, n_buffer=1)
    with built.manager as manager:
        start(manager, 1)
        manager.receive()
        assert manager.heartbeats()[0].beats == 2  # while it was built, and a step


def test_a_thread_that_hangs_ends_the_run_with_its_stack() -> None:
    hangs, released = threading.Event(), threading.Event()

    def hang_at_3(step: int) -> None:
        if step == 3:
            hangs.set()
            released.wait(60)  # THE LINE THAT BLOCKS

    built = Built(
        LOCKSTEP_THREAD, lambda _: CountingEnv(on_step=hang_at_3), num_actors=1, n_buffer=1
    )
    with built.manager as manager:
        start(manager, 10)
        manager.receive()
        manager.receive()
        assert manager.heartbeats()[0].thread_id is not None
        with (
            Interrupting(manager, lambda: hangs.wait(60)),
            pytest.raises(Stalled, match=r"(?s)actor 0 made no step for .*THE LINE THAT BLOCKS"),
        ):
            manager.receive()
        assert manager.state_dict()["actors"][0]["samples"] == 2
        released.set()


def test_a_process_that_does_not_stop_is_killed_and_named(tmp_path: Path, caplog: Log) -> None:
    built = Built(
        LOCKSTEP_PROCESS, lives=[Life(at_close=hang)], folder=tmp_path, num_actors=1, n_buffer=1,
        join_timeout_s=0.1,
    )  # fmt: skip
    with built.manager as manager:
        start(manager, 10)
        manager.receive()
    assert "killing actor 0, which did not stop in time" in caplog.text
    assert "in hang" in caplog.text
    assert leftovers.processes() == set()


def test_what_an_actor_logs_is_logged_by_the_learner(tmp_path: Path, caplog: Log) -> None:
    def steps(manager: ActorManager) -> None:
        with manager:
            start(manager, 4)
            for _ in range(4):
                manager.receive()

    caplog.set_level(logging.WARNING)
    lives = [Life(deed=complain, at=2)]
    steps(Built(LOCKSTEP_PROCESS, lives=lives, folder=tmp_path, num_actors=1, n_buffer=1).manager)
    assert "actor 0: the fuel is at 3 %" in caplog.text


def test_the_number_of_steps_per_call_doubles_and_fits_into_the_time() -> None:
    def numbers(step_s: float) -> list[int]:
        clock = FakeClock()

        def work(_: int) -> None:
            clock.time_s += step_s

        built = Built(
            LOCKSTEP_THREAD,
            lambda _: CountingEnv(on_step=work),
            num_actors=1,
            n_buffer=1,
            clock=clock,
        )
        with built.manager as manager:
            start(manager, 100)
            arrived: list[int] = []
            while sum(arrived) < 100:
                arrived.append(count(manager.receive_all(1.0)))
            return arrived

    assert numbers(0.0) == [2, 4, 8, 16, 32, 38]
    assert numbers(0.125) == [2, 4, *[8] * 11, 6]
    assert numbers(3.0) == [2, *[1] * 98]
