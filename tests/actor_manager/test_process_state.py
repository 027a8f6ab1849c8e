"""Where the actors in other processes stand: noted as they go on."""

from __future__ import annotations

import os
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from managers import count, kept, start, until
from remote_fakes import Life, ScriptedEnvFactory, die, fail, hang, hang_in_c
from resumable import SHAPES, Numbers, lanes_of, manager_of

from border_cli.actor_manager.lane import ASKED, BEATS, BUILT, PERMISSION, ROOM, WAITS
from border_cli.core.errors import ActorCrashed
from border_cli.core.interfaces import ActorManager, ActorStats


def by_id(manager: ActorManager) -> dict[int, ActorStats]:
    return {each.actor_id: each for each in manager.stats()}


@pytest.mark.parametrize("shape", SHAPES)
def test_free_actors_stand_right_behind_what_was_received_at_every_settlement(
    shape: dict[str, int],
) -> None:
    rng = np.random.default_rng(0)
    num_actors = shape["num_actors"]
    numbers = Numbers(num_actors, shape.get("num_envs", 1))
    with manager_of("process", delayed=True, **shape) as manager:
        start(manager)
        until(lambda: all(lane.actor[BEATS] for lane in lanes_of(manager)))
        for _ in range(100):
            for _ in range(int(rng.integers(3))):
                numbers.add(manager.receive(0.001))
            numbers.add(manager.settle(5.0))
            state = manager.state_dict()
            numbers.assert_contiguous()
            assert numbers.assert_fits(state, delayed=True) == num_actors
            assert state["samples"] == numbers.total
            assert [each["samples"] for each in state["actors"]] == [
                len(numbers.of(each)) * shape.get("num_envs", 1) for each in range(num_actors)
            ]
        numbers.add(manager.stop())
    numbers.assert_contiguous()
    assert not any(each.lost_samples or each.restarts for each in manager.stats())


def test_who_waits_for_permission_answers_at_once_and_waits_again() -> None:
    numbers = Numbers(2)
    with manager_of("process", num_actors=2, n_buffer=10) as manager:
        start(manager, 20)
        while numbers.total < 20:
            numbers.add(manager.receive(5.0))
        lanes = lanes_of(manager)
        for _ in range(5):
            until(lambda: all(lane.actor[WAITS] == PERMISSION for lane in lanes))
            assert manager.settle(60.0) == []
            assert numbers.assert_fits(manager.state_dict()) == 2
        assert [each.env_steps for each in manager.stats()] == [10, 10]


def test_who_waits_for_room_gets_it_and_answers() -> None:
    numbers = Numbers(3)
    with manager_of("process", num_actors=3, n_buffer=4) as manager:
        start(manager)
        lanes = lanes_of(manager)
        until(lambda: all(lane.actor[WAITS] == ROOM for lane in lanes))
        numbers.add(manager.receive())  # and not released
        until(lambda: all(lane.actor[WAITS] == ROOM for lane in lanes))
        numbers.add(manager.settle(60.0))
        assert numbers.assert_fits(manager.state_dict()) == 3
        numbers.assert_contiguous()
        assert min(len(numbers.of(each)) for each in range(3)) > 16  # a whole ring and more


def test_what_comes_behind_a_note_is_received_next() -> None:
    numbers = Numbers(2)
    with manager_of("process", num_actors=2, n_buffer=2) as manager:
        start(manager)
        while numbers.total < 10:
            numbers.add(manager.receive(5.0))
        numbers.add(manager.settle(60.0))
        settled = [len(numbers.of(each)) for each in range(2)]
        while min(len(numbers.of(each)) for each in range(2)) <= max(settled) + 10:
            numbers.add(manager.receive(5.0))
        assert [each["samples"] for each in manager.state_dict()["actors"]] == settled
        numbers.add(manager.stop())
    numbers.assert_contiguous()


@pytest.mark.parametrize("deed", [hang, hang_in_c])
def test_a_silent_actor_is_left_out_and_begins_a_new_life(tmp_path: Path, deed: Any) -> None:
    settings = {"num_actors": 2, "n_buffer": 4, "join_timeout_s": 0.1}
    numbers = Numbers(2)
    lives = [Life(deed=deed, at=15)]
    with manager_of("process", folder=tmp_path, lives=lives, **settings) as manager:
        start(manager)
        scripted = tmp_path / "deed-0"
        while not scripted.exists() or not all(numbers.of(each) for each in range(2)):
            numbers.add(manager.receive(0.01))
        numbers.add(manager.settle(0.2))
        state = manager.state_dict()
    assert numbers.assert_fits(state) == 1
    (silent,) = (each for each in state["actors"] if each["actor"] is None)
    assert (silent["life"], silent["samples"], silent["balance"]) == (0, 12, 0)
    assert silent["lost"] == 2  # 14 rows were made, three messages of 4 were sent
    silent_id = silent["actor_id"]
    rows = len(numbers.of(1 - silent_id))
    with manager_of("process", state=state, **settings) as manager:
        start(manager)
        more = Numbers(2)
        while not all(more.of(each) for each in range(2)):
            more.add(manager.receive(5.0))
        numbers.add(manager.settle(5.0))
        more.add(manager.stop())
        state = manager.state_dict()
    assert more.of(silent_id)[0] == 0
    assert more.of(1 - silent_id)[0] == rows
    assert state["actors"][silent_id]["life"] == 1
    assert by_id(manager)[silent_id].restarts == 0


def test_a_late_answer_is_no_answer_to_the_next_question() -> None:
    """An answer to another question says nothing about this one."""
    with manager_of("process", num_actors=1, n_buffer=4) as manager:
        start(manager, 8)
        assert count([kept(each) for each in manager.receive(5.0)])
        manager.settle(60.0)
        assert manager.state_dict()["actors"][0]["actor"] is not None
        (lane,) = lanes_of(manager)
        until(lambda: lane.actor[WAITS] == PERMISSION)
        # The actor hears nothing of this question: its lane shows another one.
        manager._question += 1  # type: ignore[attr-defined]
        record = manager._record(manager._question)  # type: ignore[attr-defined]
        assert record.actors[0].actor is None
        assert lane.learner[ASKED] == 1


def test_who_was_killed_as_it_stopped_is_left_out(tmp_path: Path) -> None:
    lives = [Life(deed=hang, at=15)]
    numbers = Numbers(2)
    with manager_of(
        "process", folder=tmp_path, lives=lives, num_actors=2, n_buffer=4, join_timeout_s=0.1
    ) as manager:
        start(manager)
        while not (tmp_path / "deed-0").exists() or not all(numbers.of(each) for each in range(2)):
            numbers.add(manager.receive(0.01))
        numbers.add(manager.stop())
        state = manager.state_dict()
    assert numbers.assert_fits(state) == 1
    assert [each["lost"] for each in state["actors"] if each["actor"] is None] == [2]
    numbers.assert_contiguous()


def test_when_one_crash_ends_all_the_others_are_noted(tmp_path: Path) -> None:
    lives = [Life(), Life(deed=fail, at=15)]
    numbers = Numbers(2)
    manager = manager_of(
        "process", folder=tmp_path, lives=lives, num_actors=2, n_buffer=4, max_restarts=0
    )

    def run() -> None:
        with manager:
            start(manager)
            try:
                while True:
                    numbers.add(manager.receive(5.0))
            finally:
                numbers.add(manager.settle(5.0))  # nobody may be left to answer
                numbers.add(manager.stop())

    with pytest.raises(ActorCrashed, match="broke at step 15"):
        run()
    assert numbers.assert_fits(manager.state_dict()) == 1
    numbers.assert_contiguous()


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.stress)])
def test_a_kill_at_a_random_moment_spoils_no_state(tmp_path: Path, kills: int) -> None:
    rng = np.random.default_rng(kills)
    scripted = ScriptedEnvFactory(folder=tmp_path)
    settings = {"num_actors": 2, "n_buffer": 3}
    numbers, killed = Numbers(2), set[str]()
    with manager_of("process", folder=tmp_path, max_restarts=kills, **settings) as manager:
        start(manager)
        for number in range(kills):
            scripted.wait_for("seed", 2 + number)
            alive = sorted(set(scripted.noted("pid")) - killed)
            assert len(alive) == 2
            for _ in range(int(rng.integers(4))):
                numbers.add(manager.receive(0.001))
            pid = alive[int(rng.integers(2))]
            killed.add(pid)
            delay_s = float(rng.uniform(0, 0.002))
            timer = threading.Timer(delay_s, os.kill, [int(pid), signal.SIGKILL])
            timer.start()
            for _ in range(4):  # before the kill, around it, after it
                numbers.add(manager.settle(60.0))
                state = manager.state_dict()
                numbers.assert_fits(state)
                assert state["samples"] == numbers.total
            timer.join()
        scripted.wait_for("seed", 2 + kills)
        until(lambda: all(lane.actor[BUILT] for lane in lanes_of(manager)))
        numbers.add(manager.settle(60.0))
        state = manager.state_dict()
        assert numbers.assert_fits(state) == 2
    assert sum(each.restarts for each in manager.stats()) == kills
    stood = [each["actor"]["env"]["count"] for each in state["actors"]]
    lives = [each["life"] for each in state["actors"]]
    assert sum(lives) == kills
    for actor_id in range(2):
        seen = numbers.of(actor_id)
        assert all(later in (earlier + 1, 0) for earlier, later in pairwise(seen))
    with manager_of("process", state=state, **settings) as manager:
        start(manager)
        more = Numbers(2)
        while not all(more.of(each) for each in range(2)):
            more.add(manager.receive(5.0))
        assert [more.of(each)[0] for each in range(2)] == stood
        manager.stop()
    assert [each["life"] for each in manager.state_dict()["actors"]] == lives


def test_a_process_that_dies_as_it_notes_where_it_stands_is_waited_for_no_longer(
    tmp_path: Path,
) -> None:
    numbers = Numbers(2)
    lives = [Life(at_note=die)] * 2
    with manager_of(
        "process", folder=tmp_path, lives=lives, num_actors=2, n_buffer=4, max_restarts=1
    ) as manager:
        start(manager)
        until(lambda: all(lane.actor[BUILT] for lane in lanes_of(manager)))
        numbers.add(manager.settle(60.0))
        assert numbers.assert_fits(manager.state_dict()) == 0
        numbers.assert_contiguous()
        ScriptedEnvFactory(folder=tmp_path).wait_for("seed", 4)
        until(lambda: all(lane.actor[BUILT] for lane in lanes_of(manager)))
        numbers.add(manager.settle(60.0))
        assert numbers.assert_fits(manager.state_dict()) == 2
    assert [each.restarts for each in manager.stats()] == [1, 1]
