"""Actors in processes: start, crashes, restarts, logs and signals."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from border_cli.core.types import Experience
from border_cli.errors import ActorCrashed, RunFailed
from border_cli.system.start import StartMethod
from tests.support.actor_managers import (
    Built,
    accounted,
    count,
    kept,
    receive,
    receive_until_crash,
    start,
)
from tests.support.fakes import FakePolicyFactory
from tests.support.scripted_envs import (
    BUILDING,
    Life,
    be_signalled,
    complain,
    complain_badly,
    describe,
    die,
    fail,
    leave,
    vanish,
)

DEATHS = [fail, die, *(pytest.param(death, marks=pytest.mark.slow) for death in (leave, vanish))]


@pytest.mark.parametrize("deed", DEATHS)
def test_whatever_ends_a_process_another_takes_its_place_and_every_sample_is_counted(
    tmp_path: Path, deed: Callable[[int], None]
) -> None:
    built = Built(
        "process", lives=[Life(deed=deed, at=15)], folder=tmp_path, num_actors=1, n_buffer=4
    )
    with built.manager as manager:
        start(manager)
        arrived = receive(manager, 100) + [kept(message) for message in manager.stop()]
    (stats,) = manager.stats()
    assert stats.restarts == 1
    assert stats.lost_samples == 2  # 14 rows were collected, three messages of 4 sent
    accounted(manager, arrived)


@pytest.mark.parametrize("deed", [fail, vanish, die])
def test_a_process_that_ends_while_it_builds_its_environment_is_replaced(
    tmp_path: Path, deed: Callable[[int], None]
) -> None:
    built = Built(
        "process", lives=[Life(deed=deed, at=BUILDING)], folder=tmp_path, num_actors=1, n_buffer=4
    )
    with built.manager as manager:
        start(manager, 20)
        assert count(receive(manager, 20)) == 20
    (stats,) = manager.stats()
    assert (stats.restarts, stats.lost_samples, stats.env_steps) == (1, 0, 20)


def test_a_kill_from_outside_heals_and_the_order_of_rows_is_kept_within_each_life(
    tmp_path: Path,
) -> None:
    built = Built("process", folder=tmp_path, num_actors=2, n_buffer=5, max_restarts=20)
    arrived: list[Experience] = []
    with built.manager as manager:
        start(manager)
        for kills in range(1, 7):
            pids = built.scripted.wait_for("seed", kills + 1) and built.scripted.noted("pid")
            arrived += receive(manager, 50)
            os.kill(int(pids[-1]), signal.SIGKILL)
        built.scripted.wait_for("seed", 8)
        arrived += receive(manager, 50) + [kept(message) for message in manager.stop()]
    assert sum(actor.restarts for actor in manager.stats()) == 6
    stats = manager.stats()
    assert count(arrived) == sum(actor.samples for actor in stats)
    # A kill between two stores leaves the counters one step apart.
    difference = sum(actor.env_steps - actor.samples - actor.lost_samples for actor in stats)
    assert abs(difference) <= 6
    for actor_id in range(2):
        steps = [
            int(observed)
            for message in arrived
            if message.actor_id == actor_id
            for observed in message.transitions.obs[:, 0]  # type: ignore[index]
        ]
        assert all(later in (earlier + 1, 0) for earlier, later in pairwise(steps))


def test_a_part_that_cannot_be_pickled_is_refused_with_what_to_do() -> None:
    unpicklable: Any = lambda rng, exploration=None: FakePolicyFactory()(rng, exploration)  # noqa: E731
    built = Built("process", num_actors=1, policies=unpicklable)
    with pytest.raises(RunFailed, match="actor_manager=process needs parts that can be pickled"):
        built.manager.__enter__()
    assert built.manager.stop() == []


class OnlyHere(FakePolicyFactory):
    """Can be pickled but raises when it is unpickled."""

    def __reduce__(self) -> Any:
        return fail, (7,)


def test_a_part_that_cannot_be_unpacked_there_is_reported_like_any_failure() -> None:
    built = Built("process", num_actors=1, policies=OnlyHere(), max_restarts=0)

    with pytest.raises(ActorCrashed, match="broke at step 7"):
        receive_until_crash(built, 10)


def test_what_a_process_logs_is_logged_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = [Life(deed=complain, at=3), Life(deed=complain_badly, at=3)]
    built = Built("process", lives=lives, folder=tmp_path, num_actors=2)
    with caplog.at_level(logging.INFO), built.manager as manager:
        start(manager, 40)
        receive(manager, 40)
    records = [record for record in caplog.records if record.name == "simulator"]
    assert [record.getMessage()[-15:] for record in records] == ["the fuel is at 3 %"[-15:]]
    assert records[0].levelno == logging.WARNING
    assert records[0].getMessage().startswith("actor ")
    # A record that cannot be formatted does not end the actor.
    assert not any(actor.restarts for actor in manager.stats())


def test_signals_meant_for_the_parent_do_not_end_a_process(tmp_path: Path) -> None:
    built = Built("process", lives=[Life(deed=be_signalled, at=3)], folder=tmp_path, num_actors=1)
    with built.manager as manager:
        start(manager, 20)
        assert count(receive(manager, 20)) == 20
    assert manager.stats()[0].restarts == 0


@pytest.mark.parametrize(
    "start_method",
    [StartMethod.forkserver, pytest.param(StartMethod.spawn, marks=pytest.mark.slow)],
)
def test_both_ways_to_start_give_the_same_nice_and_single_threaded_actor(
    tmp_path: Path, start_method: StartMethod
) -> None:
    built = Built(
        "process", lives=[Life(deed=describe, at=3)], folder=tmp_path, num_actors=1, n_buffer=4,
        start_method=start_method, nice=3,
    )  # fmt: skip
    with built.manager as manager:
        start(manager, 30)
        arrived = receive(manager, 30) + manager.stop()
    assert count(arrived) == 30
    (answer,) = built.scripted.noted("answer")
    nice, *variables = answer.split()
    assert int(nice) == os.nice(0) + 3
    assert variables == ["1"] * 3
