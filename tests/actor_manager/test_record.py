"""Saved states of actor managers, and resuming another manager from them."""

from __future__ import annotations

import copy
import logging
import os
import signal
import threading
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.core.interfaces import ActorManager
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import Array, Beat, Experience, State, leaves
from border_cli.errors import ActorCrashed, CheckpointError
from tests.support.actor_managers import (
    Built,
    DrawingPolicyFactory,
    accounted,
    count,
    env_seed,
    kept,
    receive,
    receive_until_crash,
    snapshot,
    start,
    until,
)
from tests.support.case_sampling import sampled
from tests.support.fakes import CountingEnv
from tests.support.scripted_envs import Delayed, Life, fail, hang

TURNS = 45
# Limit on samples by turn: fewer than the actors could collect, growing unevenly.
PERMITTED = (np.random.default_rng(3).integers(0, 5, TURNS).cumsum() - 3).tolist()
BACKENDS = ["serial", "thread", "process"]
CONCURRENT = ["thread", "process"]
BY_DEFAULT = {
    ("serial", "serial"),
    ("serial", "thread"),
    ("thread", "thread"),
    ("process", "process"),
}
PAIRS = [
    pytest.param(*pair, marks=[] if pair in BY_DEFAULT else pytest.mark.slow)
    for pair in product(BACKENDS, BACKENDS)
]


class Doomed(CountingEnv):
    """Raises at its 13th step in the first incarnations of actors 0 and 2."""

    def step(self, action: Any) -> Any:
        if self._count == 12 and self.seeds[-1] in (env_seed(0), env_seed(2)):
            raise RuntimeError("the simulator broke")
        return super().step(action)


def contents_of(messages: list[Experience]) -> list[Any]:
    """Returns the contents of messages as plain values."""
    return [
        (
            message.actor_id,
            message.opt_steps,
            message.env_steps,
            [array.tolist() for array in leaves(message.transitions.obs)],
            message.transitions.action.tolist(),
            message.transitions.reward.tolist(),
            message.transitions.discount.tolist(),
            message.episodes,
        )
        for message in messages
    ]


def plain(value: Any) -> Any:
    """Returns a state in comparable form, without the values that depend on the clock."""
    if isinstance(value, Mapping):
        return {
            key: plain(part) for key, part in value.items() if key not in ("duration_s", "seconds")
        }
    if isinstance(value, list):
        return [plain(part) for part in value]
    return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value


def run_turn(manager: ActorManager, number: int, rounds: int) -> list[Any]:
    """Acts as the learner for one turn. The limit is a multiple of `rounds` samples."""
    if number % 7 == 0:
        manager.publish(snapshot(opt_steps=number))
    manager.permit(rounds * PERMITTED[number])
    return contents_of(manager.receive())


@pytest.mark.parametrize(
    ("num_actors", "num_envs", "n_buffer"),
    sampled([(1, 1, 4), (3, 1, 5), (4, 3, 7), (3, 2, 1)], every=4),
)
def test_serial_goes_on_to_the_bit_from_between_any_two_turns(
    num_actors: int, num_envs: int, n_buffer: int
) -> None:
    def built(state: State | None = None) -> ActorManager:
        built = Built(
            "serial", lambda _: Doomed(num_envs=num_envs), policies=DrawingPolicyFactory(),
            step_processor=Delayed, state=state,
            num_actors=num_actors, n_buffer=n_buffer,
        )  # fmt: skip
        return built.manager

    with built() as unsaved:
        expected = [run_turn(unsaved, number, num_envs) for number in range(TURNS)]
    states: list[State] = []
    with built() as manager:
        for number in range(TURNS):
            states.append(manager.state_dict())
            assert manager.undelivered() == []
            assert run_turn(manager, number, num_envs) == expected[number]  # saving changes nothing
        end = plain(manager.state_dict())
    assert end["actors"][0]["restarts"] == 1
    for first in range(0, TURNS, 5):
        before = plain(copy.deepcopy(states[first]))
        with built(states[first]) as resumed:
            resumed.publish(snapshot(opt_steps=(first - 1) // 7 * 7))
            assert plain(resumed.state_dict()) == before
            rest = [run_turn(resumed, number, num_envs) for number in range(first, TURNS)]
            assert rest == expected[first:]
            assert plain(resumed.state_dict()) == end
        assert plain(states[first]) == before  # the state was not changed


def test_a_stop_of_serial_saves_the_actors_as_they_were_before_they_were_flushed() -> None:
    built = Built("serial", num_actors=2, n_buffer=100)
    with built.manager as manager:
        start(manager)
        for _ in range(3):
            assert manager.receive() == []
        before = manager.state_dict()
        assert count(manager.stop()) == 6
        assert plain(manager.state_dict()) == plain(before)
        assert manager.undelivered() == []
    assert plain(manager.state_dict()) == plain(before)
    assert before["samples"] == 0
    assert [len(actor["state"]["proxy"]["columns"]["reward"]) for actor in before["actors"]] == [
        3,
        3,
    ]


def saved(num_actors: int, *, samples: int, **settings: Any) -> State:
    """Returns the state of a serial manager after `samples` samples have arrived."""
    with Built("serial", num_actors=num_actors, **settings).manager as manager:
        start(manager, samples)
        receive(manager, samples)
        return manager.state_dict()


class Unrepeatable(CountingEnv):
    """Raises when it is resumed."""

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: None,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        del seed, state
        raise RuntimeError("the replay broke")


class Forgetful(CountingEnv):
    """Restarts two of its three episodes when it is resumed."""

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: None,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        return super().resume(seed, state)[0], [0, 2]


def test_an_actor_that_cannot_be_restored_begins_its_next_life_instead() -> None:
    with Built("serial", num_actors=1, n_buffer=4).manager as manager:
        start(manager, 10)
        before = receive(manager, 8)
        manager.receive()
        state = manager.state_dict()
    assert len(state["actors"][0]["state"]["proxy"]["columns"]["reward"]) == 1
    built = Built("serial", lambda _: Unrepeatable(), num_actors=1, n_buffer=4, state=state)
    with built.manager as manager:
        start(manager, 20)
        arrived = receive(manager, 12) + manager.stop()
    stats = manager.stats()[0]
    assert (stats.restarts, stats.lost_samples) == (1, 1)
    assert count(before + arrived) == stats.samples == 20
    assert stats.env_steps == 21
    lives = [env for env in built.envs.made if isinstance(env, CountingEnv)]
    assert [env.seeds for env in lives] == [[], [env_seed(0, incarnation=1)]]


def test_episodes_that_began_anew_are_counted_over_all_lives() -> None:
    state = saved(1, n_buffer=3, samples=9)
    for expected in (2, 4):
        built = Built(
            "serial", lambda _: Forgetful(num_envs=3), num_actors=1, n_buffer=3, state=state
        )
        with built.manager as manager:
            start(manager, 10 * expected)
            receive(manager, 6)
            manager.stop()
            state = manager.state_dict()
        assert manager.stats()[0].restarted_episodes == expected
        assert state["actors"][0]["restarted_episodes"] == expected


def test_an_actor_that_comes_back_never_repeats_its_seeds() -> None:
    with Built("serial", num_actors=3, n_buffer=100).manager as manager:
        start(manager)
        manager.receive()
        manager.receive()
        state = manager.state_dict()
    with Built("serial", num_actors=1, state=state, n_buffer=100).manager as manager:
        assert len(manager.stats()) == 1
        state = manager.state_dict()
    built = Built("serial", num_actors=3, state=state, n_buffer=100)
    with built.manager as manager:
        start(manager)
        manager.receive()
        assert [actor.lost_samples for actor in manager.stats()] == [0, 2, 2]
    seeds = [env.seeds for env in built.envs.made if isinstance(env, CountingEnv)]
    assert seeds == [[env_seed(0)], [env_seed(1, incarnation=1)], [env_seed(2, incarnation=1)]]


def test_saved_unsent_rows_arrive_although_nothing_more_is_permitted() -> None:
    state = unsent_rows()
    with Built("serial", num_actors=2, n_buffer=100, state=state).manager as manager:
        start(manager, 7)
        assert count(receive(manager, 7)) == 7
        assert manager.receive(0.01) == []
        assert manager.state_dict()["samples"] == 7


def unsent_rows() -> State:
    """Returns the state of two serial actors that have 4 and 3 unsent rows."""
    with Built("serial", num_actors=2, n_buffer=100).manager as manager:
        start(manager, 7)
        for _ in range(4):
            manager.receive()
        return manager.state_dict()


@pytest.mark.parametrize("backend", CONCURRENT)
def test_threads_and_processes_drop_saved_unsent_rows_and_collect_as_many_again(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        built = Built(backend, num_actors=2, n_buffer=100, state=unsent_rows())
    assert caplog.messages == [
        "dropped 7 samples that the actors of the saved run had not sent: only "
        "actor_manager=serial and trainer=sync continue episodes"
    ]
    with built.manager as manager:
        start(manager, 7)
        start(manager, 7)  # the limit no longer grows: the rest is granted
        arrived = receive(manager, 7) + manager.stop()
    assert count(arrived) == manager.state_dict()["samples"] == 7
    assert sum(actor.lost_samples for actor in manager.stats()) == 7
    assert sum(actor.env_steps for actor in manager.stats()) == 14


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_actor_acts_before_the_first_weights_of_a_resumed_run(backend: str) -> None:
    with Built(backend, num_actors=1, n_buffer=10, state=saved(1, samples=20)).manager as manager:
        assert manager.receive(0.05) == []
        start(manager, 40)
        assert count(receive(manager, 20)) == 20
    assert not manager.stats()[0].restarts


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize(("num_before", "num_after"), sampled([(3, 3), (4, 2), (2, 5)], every=3))
def test_any_manager_goes_on_with_what_another_saved(
    tmp_path: Path, first: str, second: str, num_before: int, num_after: int
) -> None:
    """Counters and limit continue. Seeds are new, unless serial actors continue their episodes."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    with Built(first, num_actors=num_before, n_buffer=3, folder=folders[0]).manager as manager:
        start(manager, 40)
        arrived = receive(manager, 20)
        state = manager.state_dict()
    assert state["samples"] == count(arrived)
    after = Built(second, num_actors=num_after, n_buffer=3, state=state, folder=folders[1])
    with after.manager as manager:
        start(manager, 100)
        manager.permit(100)  # the limit no longer grows: all of it is granted
        arrived += receive(manager, 100 - count(arrived))
        assert manager.receive(0.01) == manager.stop() == []
    assert manager.state_dict()["samples"] == count(arrived) == 100
    samples_before = sum(actor["samples"] for actor in state["actors"][:num_after])
    assert (
        sum(actor.samples for actor in manager.stats()) == 100 - state["samples"] + samples_before
    )
    for actor in manager.stats():
        assert actor.env_steps >= actor.samples + actor.lost_samples
    started = [actor for actor in state["actors"] if actor["incarnation"] >= 0]
    used = {str(env_seed(actor["actor_id"], actor["incarnation"])) for actor in started}
    continued = (first, second) == ("serial", "serial")
    assert continued or used.isdisjoint(after.scripted.noted("seed"))


def test_samples_that_are_lost_while_the_state_is_saved_count_once() -> None:
    """The actor fails in its thread, after the learner has begun to read its counters."""
    with Built("serial", num_actors=1, n_buffer=10).manager as manager:
        start(manager, 5)
        worker = manager._workers[0]  # type: ignore[attr-defined]
        while worker.collected < 5:
            assert manager.receive(0.01) == []
        lock = worker._counting

        class Contended:
            def __enter__(self) -> None:
                worker._counting = lock
                worker._discard()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        worker._counting = Contended()
        assert worker.saved(0).stats.lost_samples == 5


@pytest.mark.parametrize("backend", CONCURRENT)
def test_what_was_in_flight_is_counted_as_lost_and_made_again(backend: str) -> None:
    """As after a kill, nothing sent after the state was saved is received."""
    with Built(backend, num_actors=2, n_buffer=4).manager as manager:
        start(manager)
        arrived = receive(manager, 20)
        until(lambda: sum(actor.env_steps for actor in manager.stats()) > count(arrived) + 5)
        state = manager.state_dict()
    lost = [actor["lost_samples"] for actor in state["actors"]]
    assert sum(lost) >= 4  # two of the six may be unfinished steps
    assert state["samples"] == count(arrived)
    for actor in state["actors"]:
        collected = actor["samples"] + actor["lost_samples"]
        assert collected <= actor["env_steps"] <= collected + 1  # one step may be unfinished
    with Built(backend, num_actors=2, n_buffer=4, state=state).manager as manager:
        limit = count(arrived) + 40
        start(manager, limit)
        manager.permit(limit)
        arrived += receive(manager, 40)
        assert manager.receive(0.01) == manager.stop() == []
    assert count(arrived) == manager.state_dict()["samples"] == limit
    assert [actor.lost_samples for actor in manager.stats()] == lost


@pytest.mark.parametrize("backend", CONCURRENT)
def test_after_a_stop_nothing_is_lost(backend: str) -> None:
    with Built(backend, num_actors=3, n_buffer=7).manager as manager:
        start(manager)
        arrived = receive(manager, 50) + [kept(message) for message in manager.stop()]
    state = manager.state_dict()
    assert state["samples"] == count(arrived)
    for actor in state["actors"]:
        assert (actor["env_steps"], actor["lost_samples"]) == (actor["samples"], 0)
    accounted(manager, arrived)


@pytest.mark.parametrize("backend", CONCURRENT)
def test_saving_asks_nothing_of_an_actor_that_hangs(backend: str, tmp_path: Path) -> None:
    released = threading.Event()

    def wait(step: int) -> None:
        if step == 3:
            released.wait(60)

    settings: dict[str, Any] = {"num_actors": 1, "n_buffer": 2, "join_timeout_s": 0.1}
    if backend == "thread":
        built = Built(backend, lambda _: CountingEnv(on_step=wait), **settings)
    else:
        built = Built(backend, lives=[Life(deed=hang, at=3)], folder=tmp_path, **settings)
    with built.manager as manager:
        start(manager)
        assert count(receive(manager, 2)) == 2
        (actor,) = manager.state_dict()["actors"]
        released.set()
    assert (actor["samples"], actor["lost_samples"], actor["env_steps"]) == (2, 0, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_samples_of_a_row_are_never_more_than_those_of_the_checkpoint_behind_it(
    backend: str,
) -> None:
    """Otherwise a rate in the first row of a resumed run would be negative."""
    with Built(backend, num_actors=2, n_buffer=3).manager as manager:
        start(manager)
        for _ in range(50):
            manager.receive(0.01)
            shown = [actor.samples for actor in manager.stats()]
            assert shown == [actor["samples"] for actor in manager.state_dict()["actors"]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_counters_go_on_and_the_budget_of_restarts_is_fresh(backend: str, tmp_path: Path) -> None:
    state = saved(1, n_buffer=2, samples=10)
    state["actors"][0] |= {
        "restarts": 3, "lost_samples": 7, "restarted_episodes": 2, "duration_s": 50.0,
        "seconds": dict(zip(ACTOR_SECTIONS, [1.0, 2.0, 3.0, 4.0, 5.0], strict=True)),
    }  # fmt: skip
    built = Built(
        backend, lives=[Life(deed=fail, at=step) for step in (11, 11, 1, 1)], folder=tmp_path,
        num_actors=1, max_restarts=1, state=state,
    )  # fmt: skip
    (loaded,) = built.manager.stats()
    assert (loaded.restarts, loaded.lost_samples, loaded.restarted_episodes) == (3, 7, 2)
    assert (loaded.env_steps, loaded.samples, loaded.duration_s) == (10, 10, 50.0)
    assert list(loaded.seconds.values()) == [1.0, 2.0, 3.0, 4.0, 5.0]

    with pytest.raises(ActorCrashed, match="broke at step 11"):
        receive_until_crash(built)
    assert built.manager.stats()[0].restarts == 4
    (actor,) = built.manager.state_dict()["actors"]
    assert (actor["restarts"], actor["state"]) == (4, None)
    # Serial actors continue the saved incarnation.
    assert actor["incarnation"] == (1 if backend == "serial" else 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "damage",
    [
        {"samples": "many"},
        {"actors": [{"actor_id": 0}, {"id": 1}]},
        {"actors": None},
        {"actors": [{"actor_id": 0, "wings": 2}]},
    ],
)
def test_a_state_that_does_not_fit_is_refused(backend: str, damage: State) -> None:
    built = Built(backend, num_actors=1)
    with pytest.raises(CheckpointError, match="saved state of the actors is invalid"):
        built.manager.load_state_dict(saved(1, n_buffer=1, samples=5) | damage)
    built.manager.stop()


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.stress)])
def test_a_state_taken_at_any_moment_fits_what_was_received(tmp_path: Path, kills: int) -> None:
    """The state is checked before, during and after kills."""
    rng = np.random.default_rng(kills)
    built = Built("process", folder=tmp_path, num_actors=2, n_buffer=3, max_restarts=kills)
    received = [0, 0]

    def check(arrived: list[Experience]) -> None:
        for message in arrived:
            received[message.actor_id] += len(message.transitions)
        state = manager.state_dict()
        assert [actor["samples"] for actor in state["actors"]] == received
        for actor in state["actors"]:
            assert actor["lost_samples"] >= 0
            # A kill between two stores leaves a step without a sample.
            assert 0 <= actor["env_steps"] - actor["samples"] - actor["lost_samples"] <= kills + 1

    killed = set[str]()
    with built.manager as manager:
        start(manager)
        for number in range(kills):
            built.scripted.wait_for("seed", 2 + number)
            alive = sorted(set(built.scripted.noted("pid")) - killed)
            pid = alive[int(rng.integers(2))]
            killed.add(pid)
            delay_s = float(rng.uniform(0, 0.002))
            timer = threading.Timer(delay_s, os.kill, [int(pid), signal.SIGKILL])
            timer.start()
            for _ in range(20):
                check(manager.receive(0.001))
            timer.join()
        built.scripted.wait_for("seed", 2 + kills)
        check(manager.receive(0.1))
        check(manager.stop())
    assert sum(actor.restarts for actor in manager.stats()) == kills
    assert sum(actor["incarnation"] for actor in manager.state_dict()["actors"]) == kills


def test_a_state_of_threads_taken_at_any_moment_fits_what_was_received() -> None:
    """The state is checked while actors fail and are rebuilt."""
    environments = iter(range(1_000))

    def make(_: int) -> CountingEnv:
        number = next(environments)
        return CountingEnv(on_step=lambda step: fail(step) if step == 20 + number % 7 else None)

    built = Built("thread", make, num_actors=3, n_buffer=3, max_restarts=1_000)
    received = [0] * 3
    with built.manager as manager:
        start(manager)
        while not all(actor.restarts for actor in manager.stats()):
            for message in manager.receive(0.01):
                received[message.actor_id] += len(message.transitions)
            state = manager.state_dict()
            assert [actor["samples"] for actor in state["actors"]] == received
            for actor in state["actors"]:
                assert (
                    actor["env_steps"] - 1
                    <= actor["samples"] + actor["lost_samples"]
                    <= actor["env_steps"]
                )
