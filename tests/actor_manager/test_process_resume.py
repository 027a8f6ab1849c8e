"""Actors in other processes that go on where others were left."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from managers import count, kept, snapshot, start, until
from remote_fakes import BUILDING, REPLAYING, Life, die, fail
from resumable import SHAPES, Numbers, lanes_of, manager_of

from border_cli.actor_manager.lane import PERMISSION, WAITS
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.types import State


def by_id(manager: ActorManager) -> dict[int, ActorStats]:
    return {each.actor_id: each for each in manager.stats()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("permitted", [40, math.inf])
def test_a_run_in_many_attempts_has_the_rows_of_one(
    shape: dict[str, int], permitted: float
) -> None:
    """The rows behind the last settlement of an attempt are lost with it and made again."""
    state: State | None = None
    numbers = Numbers(shape["num_actors"], shape.get("num_envs", 1))
    for attempt in range(1, 5):
        with manager_of("process", delayed=True, state=state, **shape) as manager:
            start(manager, permitted * attempt)
            before = numbers.total
            while numbers.total < before + 35:
                numbers.add(manager.receive(5.0))
            numbers.add(manager.settle(5.0))
            state = manager.state_dict()
            manager.receive(0.001)
        numbers.assert_contiguous()
        samples = sum(each["samples"] for each in state["actors"])
        assert samples == state["samples"] == numbers.total
        slack = shape["num_actors"] * (shape.get("num_envs", 1) - 1)
        assert numbers.total <= permitted * attempt + slack
        assert {each["life"] for each in state["actors"]} <= {-1, 0}  # not begun, or going on


def test_a_stop_notes_where_everybody_ends_and_the_next_attempt_goes_on_there() -> None:
    numbers, state = Numbers(3), None
    for _ in range(4):
        with manager_of("process", delayed=True, state=state, num_actors=3, n_buffer=5) as manager:
            start(manager)
            before = numbers.total
            while numbers.total < before + 60:
                numbers.add(manager.receive(5.0))
            numbers.add(manager.stop())
            state = manager.state_dict()
            assert numbers.assert_fits(state, delayed=True) >= 1
        numbers.assert_contiguous()
        assert manager.state_dict() is not None
        stats = manager.stats()
        assert sum(each.samples for each in stats) == numbers.total == state["samples"]
        waiting = [
            len(each["actor"]["step_processor"]["waiting"]) for each in state["actors"]
            if each["actor"] is not None
        ]  # fmt: skip
        assert sum(each.env_steps for each in stats) == numbers.total + sum(waiting)


def test_a_run_that_never_began_stands_where_it_was_resumed() -> None:
    with manager_of("process", num_actors=2, n_buffer=4) as first:
        start(first, 30)
        rows = 0
        while rows < 30:
            rows += count(first.receive(5.0))
        first.stop()
    state = first.state_dict()
    assert all(each["actor"] for each in state["actors"])
    second = manager_of("process", state=state, num_actors=2, n_buffer=4)
    assert _without_leases(second.state_dict()) == _without_leases(state)
    assert second.stop() == []
    assert _without_leases(second.state_dict()) == _without_leases(state)
    assert second.stats() == first.stats()


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_stop_on_the_way_to_where_actors_stood_is_quick_and_loses_nothing(
    backend: str, tmp_path: Path
) -> None:
    with manager_of("process", num_actors=2, n_buffer=4) as first:
        start(first, 30)
        rows = 0
        while rows < 30:
            rows += count(first.receive(5.0))
        first.stop()
    state, lives = first.state_dict(), [Life(at=REPLAYING)] * 2
    shape = {"num_actors": 2, "n_buffer": 4, "join_timeout_s": 60.0}
    with manager_of(backend, state=state, folder=tmp_path, lives=lives, **shape) as second:
        start(second, 60)
        while len(list(tmp_path.glob("replaying-*"))) < 2:
            assert second.receive(0.05) == []
        beats = [each.beats for each in second.heartbeats()]
        while any(
            each.beats <= before for each, before in zip(second.heartbeats(), beats, strict=True)
        ):
            assert second.receive(0.01) == []
        assert second.stop() == []
        for now, before in zip(second.state_dict()["actors"], state["actors"], strict=True):
            for name in ("actor", "life", "env_steps", "samples", "restarted_episodes"):
                assert now[name] == before[name]


def _without_leases(state: State) -> State:
    """What is to be made is leased anew."""
    return state | {"actors": [each | {"balance": 0} for each in state["actors"]]}


@pytest.mark.parametrize("deed", [die, fail])
def test_a_process_that_cannot_be_resumed_is_followed_by_a_new_life_without_state(
    tmp_path: Path, deed: Any
) -> None:
    numbers = Numbers(1)
    with manager_of("process", num_actors=1, n_buffer=4) as manager:
        start(manager, 10)
        while numbers.total < 10:
            numbers.add(manager.receive(5.0))
        manager.stop()
    lives = [Life(deed=deed, at=BUILDING)]
    state = manager.state_dict()
    with manager_of(
        "process", state=state, folder=tmp_path, lives=lives, num_actors=1, n_buffer=4
    ) as manager:
        start(manager, 30)
        while numbers.total < 30:
            numbers.add(manager.receive(5.0))
        numbers.add(manager.settle(5.0))
        (actor,) = manager.state_dict()["actors"]
    assert numbers.of(0) == [*range(10), *range(20)]
    assert (actor["life"], actor["restarts"], actor["lost"]) == (1, 1, 0)
    assert by_id(manager)[0].restarts == 1


def test_rows_that_died_with_a_resumed_proxy_are_lost_and_made_again(tmp_path: Path) -> None:
    """The serial actors had gathered rows and not sent them: they count as made."""
    serial = manager_of("serial", num_actors=1, n_buffer=100)
    with serial:
        start(serial, 7)
        for _ in range(5):
            assert serial.receive() == []
        state = serial.state_dict()
    (saved,) = state["actors"]
    assert (saved["samples"], saved["env_steps"], saved["balance"]) == (0, 5, 0)
    numbers = Numbers(1)
    lives = [Life(deed=die, at=BUILDING)]
    with manager_of(
        "process", state=state, folder=tmp_path, lives=lives, num_actors=1, n_buffer=100
    ) as manager:
        start(manager, 7)
        start(manager, 7)  # the last ones
        while numbers.total < 7:
            numbers.add(manager.receive(5.0))
        assert manager.receive() == []
        numbers.add(manager.stop())
    assert numbers.of(0) == [*range(7)]
    (stats,) = manager.stats()
    assert (stats.samples, stats.lost_samples, stats.env_steps) == (7, 5, 12)


@pytest.mark.parametrize("backends", [
    ("serial", "process"), ("thread", "process"), ("process", "thread"), ("process", "serial"),
])  # fmt: skip
@pytest.mark.parametrize("permitted", [37, math.inf])
def test_a_state_crosses_from_any_manager_to_any_other(
    backends: tuple[str, str], permitted: float
) -> None:
    settings = {"num_actors": 3, "n_buffer": 5, "delayed": True}
    numbers, state = Numbers(3), None
    for attempt, backend in enumerate([*backends, *backends], 1):
        with manager_of(backend, state=state, **settings) as manager:
            start(manager, permitted * attempt)
            before = numbers.total
            while numbers.total < before + 20:
                numbers.add(manager.receive(5.0))
            numbers.add(manager.settle(5.0))
            state = manager.state_dict()
        numbers.assert_contiguous()
        assert numbers.total == state["samples"] <= permitted * attempt
        assert sum(each.samples for each in manager.stats()) >= numbers.total


def test_counters_go_on_and_the_budget_of_restarts_is_fresh(tmp_path: Path) -> None:
    state: State | None = None
    samples = 0
    for attempt in range(1, 4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        lives = [Life(deed=die, at=14 if attempt == 1 else BUILDING)]
        with manager_of(
            "process", state=state, folder=folder, lives=lives, num_actors=1, n_buffer=4,
            max_restarts=1,
        ) as manager:  # fmt: skip
            start(manager)
            while not (folder / "seed-1").exists():
                samples += count(manager.receive(0.01))
            samples += count(manager.receive(5.0))
            samples += count(manager.stop())
            state = manager.state_dict()
        (stats,), (saved,) = manager.stats(), state["actors"]
        assert (stats.restarts, saved["restarts"], saved["life"]) == (attempt, attempt, attempt)
        assert stats.samples == saved["samples"] == state["samples"] == samples
        assert stats.lost_samples == saved["lost"] == 1  # 13 rows were made, 12 were sent
        assert stats.env_steps == saved["env_steps"] == samples + 1
        assert list(stats.seconds.values()) == saved["seconds"]


def test_the_permission_counts_the_whole_run() -> None:
    state: State | None = None
    total = 0
    for permitted in (25, 40, 41, 90):
        with manager_of("process", state=state, num_actors=2, n_buffer=10) as manager:
            start(manager, permitted)
            manager.permit(permitted)  # no more will come: all of it is leased
            while total < permitted:
                total += count(manager.receive(5.0))
            assert manager.settle(5.0) == []
            state = manager.state_dict()
            assert state["samples"] == total == permitted
            assert manager.stop() == []


def test_fewer_actors_go_on_and_new_ones_begin() -> None:
    numbers = Numbers(3)
    with manager_of("process", num_actors=3, n_buffer=4) as manager:
        start(manager, 60)
        while numbers.total < 60:
            numbers.add(manager.receive(5.0))
        manager.settle(5.0)
        state = manager.state_dict()
    for num_actors in (1, 3):
        with manager_of("process", state=state, num_actors=num_actors, n_buffer=4) as manager:
            total = state["samples"]
            start(manager, total + 30)
            while count(rows := [kept(each) for each in manager.receive(5.0)]) or total < 60:
                numbers.add(rows)
                total += count(rows)
                if total >= state["samples"] + 30:
                    break
            manager.settle(5.0)
            state = manager.state_dict()
        assert state["samples"] == total
    assert numbers.of(0) == [*range(len(numbers.of(0)))]
    assert all(each["life"] <= 1 for each in state["actors"])


def test_a_state_that_does_not_fit_is_refused() -> None:
    manager = manager_of("process", num_actors=1)
    with pytest.raises(CheckpointError, match=r"saved state of the actors is invalid: .*wings"):
        manager.load_state_dict({"actors": [{"actor_id": 0, "wings": 2}], "samples": 0, "first": 0})
    manager.stop()


def test_nobody_acts_before_the_first_weights_of_a_resumed_run() -> None:
    with manager_of("process", num_actors=1, n_buffer=10) as manager:
        start(manager, 20)
        assert count([kept(each) for each in manager.receive(5.0)])
        manager.stop()
    with manager_of("process", state=manager.state_dict(), num_actors=1, n_buffer=10) as manager:
        (lane,) = lanes_of(manager)
        until(lambda: lane.actor[WAITS] == PERMISSION)
        manager.publish(snapshot())
        manager.permit(40)
        assert count([kept(each) for each in manager.receive(5.0)])
    assert manager.stats()[0].restarts == 0
