"""What managers save of their actors, and how others go on from there."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from fakes import CountingEnv, FakeClock
from managers import Built, DrawingPolicyFactory, count, env_seed, receive, snapshot, start
from remote_fakes import Delayed, fail
from resumable import Numbers

from border_cli.core.errors import ActorCrashed, CheckpointError
from border_cli.core.interfaces import ActorManager
from border_cli.core.types import Array, Beat, Experience, State, leaves

TURNS = 45
# Samples in all, by turn: less than the actors could make, and it grows unevenly.
PERMITTED = (np.random.default_rng(3).integers(0, 5, TURNS).cumsum() - 3).tolist()
LOCAL = ["serial", "thread"]


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
    [(1, 1, 4, None), (3, 1, 5, None), (4, 3, 7, None), (3, 2, 1, [2, 0, 2, 1, 0])],
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
            assert manager.settle(60.0) == []
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


def test_a_stop_of_serial_notes_where_the_actors_stood_before_they_were_flushed() -> None:
    built = Built("serial", num_actors=2, n_buffer=100)
    with built.manager as manager:
        start(manager)
        for _ in range(3):
            assert manager.receive() == []
        before = manager.state_dict()
        assert count(manager.stop()) == 6
        assert plain(manager.state_dict()) == plain(before)
        assert manager.settle(60.0) == []
    assert plain(manager.state_dict()) == plain(before)
    assert before["samples"] == 0
    assert [len(each["actor"]["proxy"]["columns"]["reward"]) for each in before["actors"]] == [3, 3]


@pytest.mark.parametrize(("first", "second"), list(product(LOCAL, LOCAL)))
@pytest.mark.parametrize(("num_before", "num_after"), [(3, 3), (4, 2), (2, 5)])
def test_any_manager_goes_on_with_what_another_saved(
    first: str, second: str, num_before: int, num_after: int
) -> None:
    numbers = Numbers(max(num_before, num_after))
    with Built(first, num_actors=num_before, n_buffer=3).manager as manager:
        start(manager, 40)
        while numbers.total < 20:
            numbers.add(manager.receive(5.0))
        numbers.add(manager.settle(60.0))
        state = manager.state_dict()
    assert state["samples"] == numbers.total
    kept_back = [each["actor"] for each in state["actors"][num_after:]]
    with Built(second, num_actors=num_after, n_buffer=3, state=state).manager as manager:
        start(manager, 100)
        while numbers.total < 100:
            assert numbers.add(manager.receive(5.0)) or second == "serial"
        numbers.add(manager.stop())
    numbers.assert_contiguous()
    assert numbers.total == 100  # what those had gathered who are gone may be made again
    assert manager.state_dict()["samples"] == 100
    assert len(kept_back) == max(0, num_before - num_after)


@pytest.mark.parametrize("backend", LOCAL)
def test_rows_that_were_saved_unsent_come_though_nothing_more_is_permitted(backend: str) -> None:
    with Built("serial", num_actors=2, n_buffer=100).manager as manager:
        start(manager, 7)
        for _ in range(4):
            manager.receive()  # the fourth turn is the last: 4 rows and 3
        state = manager.state_dict()
    with Built(backend, num_actors=2, n_buffer=100, state=state).manager as manager:
        assert manager.receive() == []
        start(manager, 7)
        assert count(receive(manager, 7)) == 7
        assert manager.receive(0.01) == []
        assert manager.state_dict()["samples"] == 7 or backend == "thread"
        manager.settle(60.0)
        assert manager.state_dict()["samples"] == 7


@pytest.mark.parametrize("backend", LOCAL)
def test_nobody_acts_on_a_saved_lease_before_the_first_weights(backend: str) -> None:
    state = saved(1, n_buffer=5, samples=3)
    state["actors"][0]["balance"] = 2
    built = Built(backend, num_actors=1, n_buffer=5, state=state)
    with built.manager as manager:
        assert manager.receive(0.01) == []
        assert manager.settle(60.0) == []
        assert plain(manager.state_dict()) == plain(state)
        assert built.envs.made == []
        start(manager, 5)
        assert count(receive(manager, 2)) == 2
    assert not manager.stats()[0].restarts  # a policy without weights fails


def saved(num_actors: int, *, samples: int, **settings: Any) -> State:
    """By a serial manager, once so many samples were made and arrived."""
    with Built("serial", num_actors=num_actors, **settings).manager as manager:
        start(manager, samples)
        receive(manager, samples)
        return manager.state_dict()


@pytest.mark.parametrize("backend", LOCAL)
def test_counters_go_on_and_the_budget_of_restarts_is_fresh(backend: str) -> None:
    state = saved(1, n_buffer=2, samples=10)
    state["actors"][0] |= {
        "restarts": 3, "lost": 7, "restarted_episodes": 2, "duration_s": 50.0,
        "seconds": [1.0, 2.0, 3.0, 4.0, 5.0],
    }  # fmt: skip
    built = Built(
        backend, lambda _: CountingEnv(on_step=fail), num_actors=1, max_restarts=1,
        state=state, clock=FakeClock(),
    )  # fmt: skip
    (loaded,) = built.manager.stats()
    assert (loaded.restarts, loaded.lost_samples, loaded.restarted_episodes) == (3, 7, 2)
    assert (loaded.env_steps, loaded.samples, loaded.duration_s) == (10, 10, 50.0)
    assert list(loaded.seconds.values()) == [1.0, 2.0, 3.0, 4.0, 5.0]

    def run() -> None:
        with built.manager as manager:
            start(manager)
            while True:
                manager.receive(5.0)

    with pytest.raises(
        ActorCrashed, match=r"no restarts are left \(actor_manager.max_restarts=1\)"
    ):
        run()
    assert built.manager.stats()[0].restarts == 4
    (record,) = built.manager.state_dict()["actors"]
    assert (record["restarts"], record["life"], record["actor"]) == (4, 1, None)


class Unrepeatable(CountingEnv):
    """Cannot be brought back to where it was."""

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: True,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        del seed, state
        raise RuntimeError("the replay broke")


class Forgetful(CountingEnv):
    """Two of its three episodes begin anew."""

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: True,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        return super().resume(seed, state)[0], [0, 2]


@pytest.mark.parametrize("backend", LOCAL)
def test_an_actor_that_cannot_be_restored_begins_its_next_life_instead(backend: str) -> None:
    with Built("serial", num_actors=1, n_buffer=4).manager as manager:
        start(manager, 10)
        before = receive(manager, 8)
        manager.receive()
        state = manager.state_dict()
    assert len(state["actors"][0]["actor"]["proxy"]["columns"]["reward"]) == 1
    built = Built(backend, lambda _: Unrepeatable(), num_actors=1, n_buffer=4, state=state)
    with built.manager as manager:
        start(manager, 20)
        arrived = receive(manager, 12) + manager.stop()
    stats = manager.stats()[0]
    assert (stats.restarts, stats.lost_samples) == (1, 1)
    assert count(before + arrived) == stats.samples == 20
    assert stats.env_steps == 21
    lives = [env for env in built.envs.made if isinstance(env, CountingEnv)]
    assert [env.seeds for env in lives] == [[], [env_seed(0, life=1)]]


@pytest.mark.parametrize("backend", LOCAL)
def test_episodes_that_began_anew_are_counted_over_all_lives(backend: str) -> None:
    state = saved(1, n_buffer=3, samples=9)
    for expected in (2, 4):
        built = Built(
            backend, lambda _: Forgetful(num_envs=3), num_actors=1, n_buffer=3, state=state
        )
        with built.manager as manager:
            start(manager, 10 * expected)
            receive(manager, 6)
            manager.stop()
            state = manager.state_dict()
        assert manager.stats()[0].restarted_episodes == expected
        assert state["actors"][0]["restarted_episodes"] == expected


def test_an_actor_that_comes_back_never_repeats_its_seeds(caplog: pytest.LogCaptureFixture) -> None:
    with Built("serial", num_actors=3, n_buffer=100).manager as manager:
        start(manager)
        manager.receive()
        manager.receive()
        state = manager.state_dict()
    with (
        caplog.at_level(logging.INFO),
        Built("serial", num_actors=1, state=state, n_buffer=100).manager as manager,
    ):
        assert len(manager.stats()) == 1
        state = manager.state_dict()
    assert [each.getMessage() for each in caplog.records] == [
        "dropped 2 actors of the saved run with 4 samples not yet sent: "
        "actor_manager.num_actors is smaller now"
    ]
    built = Built("serial", num_actors=3, state=state, n_buffer=100)
    with built.manager as manager:
        start(manager)
        manager.receive()
        assert [each.lost_samples for each in manager.stats()] == [0, 2, 2]
    seeds = [env.seeds for env in built.envs.made if isinstance(env, CountingEnv)]
    assert seeds == [[env_seed(0)], [env_seed(1, life=1)], [env_seed(2, life=1)]]


@pytest.mark.parametrize("backend", LOCAL)
def test_what_cannot_say_where_it_stands_begins_anew_and_training_goes_on(backend: str) -> None:
    class Silent(CountingEnv):
        def state_dict(self) -> State:
            raise RuntimeError("no idea")

    with Built(backend, lambda _: Silent(), num_actors=1, n_buffer=4).manager as manager:
        start(manager, math.inf)
        arrived = receive(manager, 10)
        arrived += manager.settle(60.0)
        (actor,) = manager.state_dict()["actors"]
        receive(manager, 10)
    assert actor["actor"] is None
    assert (actor["life"], actor["balance"], actor["restarts"]) == (0, 0, 0)
    assert actor["samples"] == count(arrived)
    assert actor["env_steps"] == actor["samples"] + actor["lost"]


@pytest.mark.parametrize("backend", LOCAL)
@pytest.mark.parametrize(
    "damage", [{"samples": "many"}, {"actors": [{"actor_id": 0}, {"id": 1}]}, {"actors": None}]
)
def test_a_state_that_does_not_fit_is_refused(backend: str, damage: State) -> None:
    state = saved(1, n_buffer=1, samples=5) | damage
    with pytest.raises(CheckpointError, match="saved state of the actors is invalid"):
        Built(backend, num_actors=1, state=state)
