"""Where actors in threads stand: noted while they run, and exact to the row."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import CountingEnv, CountingEnvFactory
from managers import Built, accounted, count, env_seed, receive, start, until
from numpy.typing import NDArray
from remote_fakes import Delayed
from resumable import Numbers

from border_cli.core.errors import ActorCrashed
from border_cli.core.interfaces import ActorManager
from border_cli.core.types import Array, Experience, State, Step

WITHOUT_END_S = 1_000.0  # who waits so long is stopped by the watchdog of the tests

SHAPES = [
    {"num_actors": 4, "n_buffer": 1},  # the channel is full most of the time
    {"num_actors": 3, "n_buffer": 7},
    {"num_actors": 2, "n_buffer": 4, "num_envs": 3},
    {"num_actors": 2, "n_buffer": 100_000},  # nothing is sent unless it is asked for
]


class Scripted(CountingEnv):
    """Tells `on_step` whose it is, in its first life."""

    def __init__(self, on_step: Callable[[int, int], None]) -> None:
        super().__init__()
        self._tell = on_step

    def reset(self, seed: int) -> Array:
        self._actor_id = next((i for i in range(9) if env_seed(i) == seed), -1)
        return super().reset(seed)

    def step(self, action: NDArray[Any]) -> Step:
        self._tell(self._actor_id, self._count + 1)
        return super().step(action)


class Stuck:
    """An actor that stays in its third step until it is released."""

    def __init__(self, actor_id: int) -> None:
        self._actor_id = actor_id
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, actor_id: int, step: int) -> None:
        if actor_id == self._actor_id and step == 3:
            self.entered.set()
            self.released.wait(60)


def known(state: State) -> list[int]:
    return [each["actor_id"] for each in state["actors"] if each["actor"] is not None]


def assert_accounted(state: State) -> None:
    """Every row that was made is with the learner, unsent in an actor, or lost."""
    for each in state["actors"]:
        assert each["env_steps"] >= each["samples"] + each["lost"]
        if each["actor"] is not None:
            assert each["actor"]["proxy"]["columns"] is None  # all was sent
            assert each["actor"]["env"]["count"] == each["samples"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("permitted", [math.inf, 7])
def test_actors_stand_right_behind_what_was_received_at_a_hundred_settlements(
    shape: dict[str, int], permitted: float
) -> None:
    rng = np.random.default_rng(0)
    num_envs, num_actors = shape.get("num_envs", 1), shape["num_actors"]
    numbers = Numbers(num_actors, num_envs)
    built = Built("thread", step_processor=Delayed, **shape)
    with built.manager as manager:
        start(manager, permitted)
        if permitted == math.inf:
            until(lambda: all(each.env_steps for each in manager.stats()))
        for number in range(100):
            for _ in range(int(rng.integers(3))):
                numbers.add(manager.receive(0.001))
            if permitted < math.inf:  # a few rows at a time: most actors wait at the gate
                manager.permit(permitted + number * int(rng.integers(1, 4)))
            numbers.add(manager.settle(WITHOUT_END_S))
            state = manager.state_dict()
            numbers.assert_contiguous()
            numbers.assert_fits(state, delayed=True)
            assert permitted < math.inf or known(state) == list(range(num_actors))
            assert state["samples"] == numbers.total
            assert [each["samples"] for each in state["actors"]] == [
                num_envs * len(numbers.of(each)) for each in range(num_actors)
            ]
        numbers.add(manager.stop())
    numbers.assert_contiguous()
    assert set(known(manager.state_dict())) >= set(known(state))
    numbers.assert_fits(manager.state_dict(), delayed=True)
    assert not any(each.lost_samples or each.restarts for each in manager.stats())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_in_many_attempts_has_the_rows_of_one(shape: dict[str, int], stopped: bool) -> None:
    """What comes behind the last settlement of an attempt is made again in the next."""
    num_envs = shape.get("num_envs", 1)
    numbers = Numbers(shape["num_actors"], num_envs)
    state: State | None = None
    for attempt in range(1, 11):
        built = Built("thread", step_processor=Delayed, state=state, **shape)
        with built.manager as manager:
            start(manager, 60 * attempt)
            while numbers.total < 60 * attempt - 30:
                numbers.add(manager.receive(5.0))
            numbers.add(manager.settle(WITHOUT_END_S))
            if stopped:
                manager.permit(60 * attempt + 5)
                numbers.add(manager.receive())  # what was held back
                numbers.add(manager.stop())
            state = manager.state_dict()
            assert state["samples"] == numbers.total
            if not stopped:
                manager.receive()  # it is in nobody's state
    numbers.assert_contiguous()
    rounding = shape["num_actors"] * (num_envs - 1)
    assert 570 <= numbers.total <= 605 + rounding  # no lease was forgotten, and none was doubled


def test_a_settlement_is_what_the_next_receive_goes_on_from() -> None:
    """Also where two follow each other at once, and where all ends after one."""
    numbers = Numbers(3)
    with Built("thread", num_actors=3, n_buffer=2).manager as manager:
        start(manager)
        until(lambda: all(each.env_steps for each in manager.stats()))
        for _ in range(20):
            for _ in range(3):
                numbers.add(manager.settle(WITHOUT_END_S))
                numbers.assert_fits(manager.state_dict())
            before = manager.state_dict()
            numbers.add(manager.receive())
            assert manager.state_dict() is before
        numbers.add(manager.settle(WITHOUT_END_S))
        numbers.add(manager.stop())
        numbers.assert_fits(manager.state_dict())
        assert manager.settle(WITHOUT_END_S) == manager.stop() == []
    numbers.assert_contiguous()
    assert manager.state_dict()["samples"] == numbers.total
    assert numbers.total == sum(each.env_steps for each in manager.stats())


def test_actors_that_wait_for_permission_answer_and_wait_again() -> None:
    with Built("thread", num_actors=3, n_buffer=5).manager as manager:
        start(manager, 9)
        assert count(receive(manager, 9)) == 9
        until(
            lambda: all("rate limiter" in (each.waiting_for or "") for each in manager.heartbeats())
        )
        begun = {each.actor_id for each in manager.stats() if each.env_steps}
        for _ in range(5):
            assert manager.settle(WITHOUT_END_S) == []
            assert_accounted(manager.state_dict())
            assert set(known(manager.state_dict())) == begun
        manager.permit(15)
        assert count(receive(manager, 6)) == 6


def test_actors_that_wait_for_room_get_it_and_answer() -> None:
    with Built("thread", num_actors=3, n_buffer=5).manager as manager:
        start(manager)
        until(
            lambda: (
                manager.gauges()["async/queue_fill"] == 1
                and all(each.env_steps for each in manager.stats())
                and all("space" in (each.waiting_for or "") for each in manager.heartbeats())
            )
        )
        settled = manager.settle(WITHOUT_END_S)
        assert len(settled) > 6  # as many fit into the channel, the others were in hand
        assert_accounted(manager.state_dict())
        assert manager.state_dict()["samples"] == count(settled)
        assert known(manager.state_dict()) == [0, 1, 2]


def test_who_does_not_answer_in_time_is_left_out_and_its_late_answer_is_dropped() -> None:
    stuck = Stuck(1)
    built = Built("thread", lambda _: Scripted(stuck), num_actors=3, n_buffer=2)
    numbers = Numbers(3)
    with built.manager as manager:
        start(manager)
        while not stuck.entered.is_set():
            numbers.add(manager.receive(5.0))
        state: State = {"actors": []}
        while known(state) != [0, 2]:  # on a busy machine others are late now and then
            numbers.add(manager.settle(0.02))
            state = manager.state_dict()
            assert 1 not in known(state)
            assert_accounted(state)
            assert state["samples"] == numbers.total
            left_out = state["actors"][1]
            assert (left_out["life"], left_out["samples"], left_out["lost"]) == (0, 2, 0)
        stuck.released.set()
        while len(numbers.of(1)) < 10:
            numbers.add(manager.receive(5.0))
        assert manager.state_dict() is state
        numbers.add(manager.settle(WITHOUT_END_S))
        assert known(manager.state_dict()) == [0, 1, 2]
        assert_accounted(manager.state_dict())
        numbers.add(manager.stop())
    numbers.assert_contiguous()


def test_the_samples_of_one_that_is_left_out_are_made_again_by_another_life() -> None:
    stuck = Stuck(0)
    first = Built("thread", lambda _: Scripted(stuck), num_actors=1, n_buffer=5)
    with first.manager as manager:
        start(manager, 20)
        assert stuck.entered.wait(5)
        assert manager.settle(0.02) == []
        state = manager.state_dict()
        stuck.released.set()
    (left_out,) = state["actors"]
    assert (left_out["samples"], left_out["lost"], left_out["env_steps"]) == (0, 2, 2)
    second = Built("thread", num_actors=1, n_buffer=5, state=state)
    with second.manager as manager:
        start(manager, 20)
        assert count(receive(manager, 20)) == 20
        assert manager.receive(0.01) == []
    assert seeds_of(second.envs) == [[env_seed(0, life=1)]]
    (stats,) = manager.stats()
    assert (stats.env_steps, stats.samples, stats.lost_samples, stats.restarts) == (22, 20, 2, 0)


def seeds_of(envs: CountingEnvFactory) -> list[list[int]]:
    return [env.seeds for env in envs.made if isinstance(env, CountingEnv)]


def test_nobody_waits_for_an_actor_that_is_being_built_or_restored() -> None:
    building, release = threading.Event(), threading.Event()

    def slow(_: int) -> CountingEnv:
        building.set()
        assert release.wait(60)
        return CountingEnv()

    with Built("serial", num_actors=2).manager as manager:
        start(manager)
        receive(manager, 200)
        saved = manager.state_dict()
    built = Built("thread", slow, num_actors=3, state=saved)
    with built.manager as manager:
        start(manager)
        assert building.wait(5)
        assert manager.settle(WITHOUT_END_S) == []
        state = manager.state_dict()
        assert known(state) == [0, 1]  # those go on from where they were saved
        assert state["actors"][0]["actor"]["env"] == saved["actors"][0]["actor"]["env"]
        assert state["actors"][2]["life"] == -1 or state["actors"][2]["life"] == 0
        release.set()
        receive(manager, 300)


def test_nobody_waits_for_an_actor_that_crashes_instead_of_an_answer() -> None:
    answering, asked = threading.Event(), threading.Event()
    answered, settled = threading.Event(), threading.Event()

    def crash(actor_id: int, step: int) -> None:
        if actor_id == 1 and step == 5:
            answering.set()
            assert answered.wait(60)
            until(lambda: not built.manager.gauges()["async/queue_fill"])  # the learner has it
            raise RuntimeError("mine")
        if actor_id == 0 and asked.is_set():
            answered.set()
            assert settled.wait(60)  # it sends nothing that could wake the learner

    class Answering(Scripted):
        def state_dict(self) -> State:
            asked.set()
            return super().state_dict()

    def make(number: int) -> CountingEnv:
        assert number < 2 or settled.wait(60)  # no next life that could answer
        return Answering(crash)

    built = Built("thread", make, num_actors=2, n_buffer=3)
    with built.manager as manager:
        start(manager)
        arrived: list[Experience] = []
        while not answering.is_set() or not manager.stats()[0].env_steps:
            arrived += manager.receive(0.01)
        arrived += manager.settle(WITHOUT_END_S)
        settled.set()
        state = manager.state_dict()
        assert_accounted(state)
        assert state["samples"] == count(arrived)
        crashed = state["actors"][1]
        assert crashed["actor"] is None
        assert (crashed["samples"], crashed["lost"], crashed["restarts"]) == (3, 1, 1)
        arrived += receive(manager, 50) + manager.stop()
    accounted(manager, arrived)


def test_a_settlement_ends_when_an_actor_is_past_its_restarts() -> None:
    stepped: set[int] = set()

    def crash(actor_id: int, step: int) -> None:
        stepped.add(actor_id)
        if actor_id == 0 and step >= 50 and len(stepped) == 3:
            raise RuntimeError("mine")

    built = Built("thread", lambda _: Scripted(crash), num_actors=3, n_buffer=3, max_restarts=0)
    arrived: list[Experience] = []

    def run() -> None:
        with built.manager as manager:
            start(manager)
            try:
                while True:
                    arrived.extend(manager.settle(WITHOUT_END_S))
                    arrived.extend(manager.receive(0.001))
            finally:
                arrived.extend(manager.stop())

    with pytest.raises(ActorCrashed, match="mine"):
        run()
    state = built.manager.state_dict()
    assert_accounted(state)
    assert known(state) == [1, 2]
    assert state["samples"] == count(arrived)
    accounted(built.manager, arrived)


class ClockOfOthers:
    """The deadline passes once somebody has ended."""

    def __init__(self) -> None:
        self.built: Built | None = None

    def now_s(self) -> float:
        envs = self.built.envs.made if self.built is not None else []
        return 1e9 * any(env.closed for env in envs if isinstance(env, CountingEnv))


def test_one_that_does_not_stop_is_left_out_of_the_last_state() -> None:
    stuck, clock = Stuck(1), ClockOfOthers()
    built = clock.built = Built(
        "thread", lambda _: Scripted(stuck), num_actors=2, n_buffer=10, clock=clock
    )

    def run() -> None:
        with built.manager as manager:
            start(manager)
            until(lambda: stuck.entered.is_set() and manager.stats()[0].env_steps > 0)
            manager.stop()

    with pytest.raises(Exception, match=r"released\.wait\(60\)"):
        run()
    state = built.manager.state_dict()
    stuck.released.set()
    assert known(state) == [0]
    assert state["actors"][1]["lost"] == 2
    assert_accounted(state)


@pytest.mark.stress
def test_runs_in_hundreds_of_attempts_lose_and_double_nothing() -> None:
    """With crashes in between, which lose what they say."""
    rng = np.random.default_rng(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        total, state = 0, None
        for _ in range(300):
            built = Built("thread", state=state, **SHAPES[int(rng.integers(4))])
            total = _attempt(built.manager, rng, total)
            state = built.manager.state_dict()
            assert state["samples"] == total
    finally:
        sys.setswitchinterval(interval)


def _attempt(manager: ActorManager, rng: np.random.Generator, total: int) -> int:
    with manager:
        start(manager, total + float(rng.choice([5, 50, math.inf])))
        for _ in range(int(rng.integers(4))):
            total += count(manager.receive(0.001))
            total += count(manager.settle(WITHOUT_END_S))
            assert manager.state_dict()["samples"] == total
        return total + count(manager.stop())
