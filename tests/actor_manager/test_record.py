"""What managers save of their actors, and how others go on from there."""

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
# Samples in all, by turn: less than the actors could make, and it grows unevenly.
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
    """Breaks at its 13th step in the first lives of actors 0 and 2."""

    def step(self, action: Any) -> Any:
        if self._count == 12 and self.seeds[-1] in (env_seed(0), env_seed(2)):
            raise RuntimeError("the simulator broke")
        return super().step(action)


def told(messages: list[Experience]) -> list[Any]:
    """All that is in the messages, as plain values."""
    return [
        (
            each.actor_id,
            each.opt_steps,
            each.env_steps,
            [array.tolist() for array in leaves(each.transitions.obs)],
            each.transitions.action.tolist(),
            each.transitions.reward.tolist(),
            each.transitions.discount.tolist(),
            each.episodes,
        )
        for each in messages
    ]


def plain(value: Any) -> Any:
    """A state that can be compared, without what depends on the clock."""
    if isinstance(value, Mapping):
        return {
            key: plain(each) for key, each in value.items() if key not in ("duration_s", "seconds")
        }
    if isinstance(value, list):
        return [plain(each) for each in value]
    return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value


def turn(manager: ActorManager, number: int, rounds: int) -> list[Any]:
    """What the learner does in this turn, in which so many rows come at a time."""
    if number % 7 == 0:
        manager.publish(snapshot(opt_steps=number))
    manager.permit(rounds * PERMITTED[number])
    return told(manager.receive())


@pytest.mark.parametrize(
    ("num_actors", "num_envs", "n_buffer", "order"),
    sampled(
        [(1, 1, 4, None), (3, 1, 5, None), (4, 3, 7, None), (3, 2, 1, [2, 0, 2, 1, 0])], every=4
    ),
)
def test_serial_goes_on_to_the_bit_from_between_any_two_turns(
    num_actors: int, num_envs: int, n_buffer: int, order: list[int] | None
) -> None:
    def built(state: State | None = None) -> ActorManager:
        built = Built(
            "serial", lambda _: Doomed(num_envs=num_envs), policies=DrawingPolicyFactory(),
            step_processor=Delayed, order=order, state=state,
            num_actors=num_actors, n_buffer=n_buffer,
        )  # fmt: skip
        return built.manager

    with built() as unsaved:
        expected = [turn(unsaved, number, num_envs) for number in range(TURNS)]
    states: list[State] = []
    with built() as manager:
        for number in range(TURNS):
            states.append(manager.state_dict())
            assert manager.undelivered() == []
            assert turn(manager, number, num_envs) == expected[number]  # to save changes nothing
        end = plain(manager.state_dict())
    assert end["actors"][0]["restarts"] == 1
    for first in range(0, TURNS, 5):
        before = plain(copy.deepcopy(states[first]))
        with built(states[first]) as resumed:
            resumed.publish(snapshot(opt_steps=(first - 1) // 7 * 7))
            assert plain(resumed.state_dict()) == before
            rest = [turn(resumed, number, num_envs) for number in range(first, TURNS)]
            assert rest == expected[first:]
            assert plain(resumed.state_dict()) == end
        assert plain(states[first]) == before  # nothing in it was written again


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
    assert [len(each["state"]["proxy"]["columns"]["reward"]) for each in before["actors"]] == [3, 3]


def saved(num_actors: int, *, samples: int, **settings: Any) -> State:
    """By a serial manager, once so many samples were made and arrived."""
    with Built("serial", num_actors=num_actors, **settings).manager as manager:
        start(manager, samples)
        receive(manager, samples)
        return manager.state_dict()


class Unrepeatable(CountingEnv):
    """Cannot be brought back to where it was."""

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: None,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        del seed, state
        raise RuntimeError("the replay broke")


class Forgetful(CountingEnv):
    """Two of its three episodes begin anew."""

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
        assert [each.lost_samples for each in manager.stats()] == [0, 2, 2]
    seeds = [env.seeds for env in built.envs.made if isinstance(env, CountingEnv)]
    assert seeds == [[env_seed(0)], [env_seed(1, incarnation=1)], [env_seed(2, incarnation=1)]]


def test_rows_that_were_saved_unsent_come_though_nothing_more_is_permitted() -> None:
    state = unsent_rows()
    with Built("serial", num_actors=2, n_buffer=100, state=state).manager as manager:
        assert manager.receive() == []
        start(manager, 7)
        assert count(receive(manager, 7)) == 7
        assert manager.receive(0.01) == []
        assert manager.state_dict()["samples"] == 7


def unsent_rows() -> State:
    """Of two serial actors with four rows and three in their proxies."""
    with Built("serial", num_actors=2, n_buffer=100).manager as manager:
        start(manager, 7)
        for _ in range(4):
            manager.receive()
        return manager.state_dict()


@pytest.mark.parametrize("backend", CONCURRENT)
def test_rows_that_were_saved_unsent_are_lost_to_threads_and_processes_and_made_again(
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
        start(manager, 7)  # the last ones
        arrived = receive(manager, 7) + manager.stop()
    assert count(arrived) == manager.state_dict()["samples"] == 7
    assert sum(each.lost_samples for each in manager.stats()) == 7
    assert sum(each.env_steps for each in manager.stats()) == 14


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
    """Counters, limit and, except for serial actors, which continue episodes, unused seeds."""
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
        manager.permit(100)  # no more will come: all of it is granted
        arrived += receive(manager, 100 - count(arrived))
        assert manager.receive(0.01) == manager.stop() == []
    assert manager.state_dict()["samples"] == count(arrived) == 100
    own = sum(each["samples"] for each in state["actors"][:num_after])
    assert sum(each.samples for each in manager.stats()) == 100 - state["samples"] + own
    for each in manager.stats():
        assert each.env_steps >= each.samples + each.lost_samples
    begun = [each for each in state["actors"] if each["incarnation"] >= 0]
    used = {str(env_seed(each["actor_id"], each["incarnation"])) for each in begun}
    continued = (first, second) == ("serial", "serial")
    assert continued or used.isdisjoint(after.scripted.noted("seed"))


@pytest.mark.parametrize("backend", CONCURRENT)
def test_what_was_in_flight_is_counted_as_lost_and_made_again(backend: str) -> None:
    """As at a kill: nothing that comes after the state is received."""
    with Built(backend, num_actors=2, n_buffer=4).manager as manager:
        start(manager)
        arrived = receive(manager, 20)
        until(lambda: sum(each.env_steps for each in manager.stats()) > count(arrived) + 5)
        state = manager.state_dict()
    lost = [each["lost_samples"] for each in state["actors"]]
    assert sum(lost) >= 4  # two of those above may be steps under way
    assert state["samples"] == count(arrived)
    for each in state["actors"]:
        made = each["samples"] + each["lost_samples"]
        assert made <= each["env_steps"] <= made + 1  # in the step that was under way
    with Built(backend, num_actors=2, n_buffer=4, state=state).manager as manager:
        limit = count(arrived) + 40
        start(manager, limit)
        manager.permit(limit)
        arrived += receive(manager, 40)
        assert manager.receive(0.01) == manager.stop() == []
    assert count(arrived) == manager.state_dict()["samples"] == limit
    assert [each.lost_samples for each in manager.stats()] == lost


@pytest.mark.parametrize("backend", CONCURRENT)
def test_after_a_stop_nothing_is_lost(backend: str) -> None:
    with Built(backend, num_actors=3, n_buffer=7).manager as manager:
        start(manager)
        arrived = receive(manager, 50) + [kept(each) for each in manager.stop()]
    state = manager.state_dict()
    assert state["samples"] == count(arrived)
    for each in state["actors"]:
        assert (each["env_steps"], each["lost_samples"]) == (each["samples"], 0)
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
    """Else a rate of a resumed run would be negative in its first row."""
    with Built(backend, num_actors=2, n_buffer=3).manager as manager:
        start(manager)
        for _ in range(50):
            manager.receive(0.01)
            shown = [each.samples for each in manager.stats()]
            assert shown == [each["samples"] for each in manager.state_dict()["actors"]]


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
    # Serial continues the saved one.
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
    """Before a kill, around it and after it."""
    rng = np.random.default_rng(kills)
    built = Built("process", folder=tmp_path, num_actors=2, n_buffer=3, max_restarts=kills)
    received = [0, 0]

    def check(arrived: list[Experience]) -> None:
        for each in arrived:
            received[each.actor_id] += len(each.transitions)
        state = manager.state_dict()
        assert [each["samples"] for each in state["actors"]] == received
        for each in state["actors"]:
            assert each["lost_samples"] >= 0
            # A kill between two stores leaves a step that made no sample.
            assert 0 <= each["env_steps"] - each["samples"] - each["lost_samples"] <= kills + 1

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
    assert sum(each.restarts for each in manager.stats()) == kills
    assert sum(each["incarnation"] for each in manager.state_dict()["actors"]) == kills


def test_a_state_of_threads_taken_at_any_moment_fits_what_was_received() -> None:
    """Also while actors fail and are made again."""
    environments = iter(range(1_000))

    def make(_: int) -> CountingEnv:
        number = next(environments)
        return CountingEnv(on_step=lambda step: fail(step) if step == 20 + number % 7 else None)

    built = Built("thread", make, num_actors=3, n_buffer=3, max_restarts=1_000)
    received = [0] * 3
    with built.manager as manager:
        start(manager)
        while not all(each.restarts for each in manager.stats()):
            for each in manager.receive(0.01):
                received[each.actor_id] += len(each.transitions)
            state = manager.state_dict()
            assert [each["samples"] for each in state["actors"]] == received
            for each in state["actors"]:
                assert (
                    each["env_steps"] - 1
                    <= each["samples"] + each["lost_samples"]
                    <= each["env_steps"]
                )
