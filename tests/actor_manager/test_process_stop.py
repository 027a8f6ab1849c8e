"""Stopping a manager of processes, also after errors and interrupts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from border_cli.actor_manager.shared_channel import SPACE, WAITS
from border_cli.core.types import Experience
from border_cli.errors import ActorCrashed
from tests.support import leftovers
from tests.support.actor_managers import Built, accounted, kept, receive, start, until
from tests.support.scripted_envs import Life, fail


def test_a_failure_during_the_stop_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built = Built("process", lives=[Life(at_close=fail)], folder=tmp_path, num_actors=1)
    with built.manager as manager:
        start(manager, 10)
        receive(manager, 10)
    assert "the simulator broke" in caplog.text
    assert manager.stats()[0].restarts == 0


def test_a_stop_releases_the_received_rows_and_receives_those_that_wait_for_space() -> None:
    """All rows were received but not released, and every actor waits for space to send more."""
    built = Built("process", num_actors=2, n_buffer=4, join_timeout_s=60)
    channels = built.manager._channels  # type: ignore[attr-defined]
    with built.manager as manager:
        start(manager)
        until(lambda: all(channel.actor[WAITS] == SPACE for channel in channels))
        arrived = [kept(message) for message in manager.receive()]
        assert arrived
        arrived += [kept(message) for message in manager.stop()]
    accounted(manager, arrived)
    assert not any(actor.lost_samples for actor in manager.stats())


def test_a_stop_that_was_interrupted_is_completed_by_the_next(tmp_path: Path) -> None:
    built = Built("process", folder=tmp_path, num_actors=2)
    supervisor = built.manager._supervisor  # type: ignore[attr-defined]
    close, times = supervisor.close, iter([1])

    def interrupt_once() -> None:
        for _ in times:
            raise KeyboardInterrupt
        close()

    supervisor.close = interrupt_once

    def run() -> None:
        with built.manager as manager:
            start(manager, 10)
            receive(manager, 10)
            manager.stop()

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not leftovers.wait_until_gone({int(pid) for pid in built.scripted.noted("pid")}, 0)


def test_stopping_before_the_start_and_twice_is_fine() -> None:
    built = Built("process", num_actors=2)
    assert built.manager.stop() == []
    assert built.manager.stop() == []


def test_a_crash_is_raised_again_at_the_end_and_hides_no_other_error(tmp_path: Path) -> None:
    def make(name: str) -> Built:
        folder = tmp_path / name
        folder.mkdir()
        return Built(
            "process", lives=[Life(deed=fail, at=3)], folder=folder, num_actors=1, max_restarts=0
        )

    def run(built: Built, error: type[Exception] | None = None) -> None:
        with built.manager as manager:
            start(manager)
            until(lambda: bool(manager._supervisor.crash))  # type: ignore[attr-defined]
            if error:
                raise error("mine")

    with pytest.raises(ActorCrashed, match="broke at step 3"):
        run(make("alone"))
    with pytest.raises(KeyError, match="mine"):
        run(make("beside"), KeyError)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_the_others_deliver_what_they_have_when_one_crashes(backend: str, tmp_path: Path) -> None:
    built = Built(
        backend, lives=[Life(), Life(deed=fail, at=10)], folder=tmp_path, num_actors=2,
        n_buffer=7, max_restarts=0,
    )  # fmt: skip
    arrived: list[Experience] = []

    def run() -> None:
        with built.manager as manager:
            start(manager)
            try:
                while True:
                    arrived.extend(kept(message) for message in manager.receive(5))
            finally:
                arrived.extend(kept(message) for message in manager.stop())

    with pytest.raises(ActorCrashed, match="broke at step 10"):
        run()
    accounted(built.manager, arrived)
    assert (
        sum(actor.lost_samples for actor in built.manager.stats()) == 2
    )  # lost by the actor that failed


@pytest.mark.long
@pytest.mark.stress
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_managers_of_all_shapes_start_and_stop_at_any_moment(backend: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        built = Built(
            backend,
            num_actors=int(rng.integers(1, 5)),
            n_buffer=int(rng.choice([1, 2, 7, 50])),
            num_envs=int(rng.choice([1, 3, 9])),
        )
        samples = int(rng.choice([0, 1, 17, 500]))
        with built.manager as manager:
            start(manager, max(1, samples) if rng.random() < 0.5 else math.inf)
            arrived = receive(manager, samples)
            if rng.random() < 0.5:
                arrived += [kept(message) for message in manager.receive()]
            arrived += [kept(message) for message in manager.stop()]
        accounted(manager, arrived)
        assert not any(actor.lost_samples or actor.restarts for actor in manager.stats())
