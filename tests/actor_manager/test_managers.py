"""Behaviour shared by the serial, thread and process actor managers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from border_cli.core.rows import EPISODE_COLUMN
from border_cli.core.types import EPISODE
from border_cli.errors import ActorCrashed
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.actor_managers import (
    Built,
    count,
    kept,
    receive,
    receive_until_crash,
    snapshot,
    start,
)
from tests.support.scripted_envs import (
    BUILDING,
    BoundPolicyFactory,
    Life,
    TellingPolicyFactory,
    fail,
    leave,
)

BACKENDS = ["serial", "thread", "process"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_actors_make_exactly_what_is_permitted(backend: str) -> None:
    built = Built(backend, num_actors=3, n_buffer=7)
    with built.manager as manager:
        start(manager, 50)
        arrived = receive(manager, 50)
        arrived += manager.stop()
    assert count(arrived) == 50
    assert sum(message.env_steps for message in arrived) == 50
    stats = manager.stats()
    assert sum(actor.samples for actor in stats) == 50
    assert sum(actor.env_steps for actor in stats) == 50


def test_the_rows_of_each_actor_arrive_complete_and_in_order(backend: str) -> None:
    built = Built(backend, num_actors=3, n_buffer=4)
    with built.manager as manager:
        start(manager, 100)
        arrived = receive(manager, 100) + manager.stop()
    for actor_id in {message.actor_id for message in arrived}:
        rows = [message.transitions.obs for message in arrived if message.actor_id == actor_id]
        obs = np.concatenate(rows)[:, 0]
        np.testing.assert_array_equal(obs, np.arange(len(obs)))


def test_an_actor_that_is_held_back_sends_its_partly_filled_proxy(backend: str) -> None:
    built = Built(backend, num_actors=1, n_buffer=100)
    with built.manager as manager:
        start(manager, 100)
        assert count(receive(manager, 100)) == 100
        manager.permit(205)
        assert count(receive(manager, 105)) == 105  # 100 in a full message, 5 in a partial one


def test_nobody_acts_before_the_first_weights(backend: str) -> None:
    built = Built(backend, num_actors=2)
    with built.manager as manager:
        assert manager.receive() == []
        manager.publish(snapshot(opt_steps=7))
        manager.permit(10)
        assert {message.opt_steps for message in receive(manager, 10)} == {7}
    assert all(policy.loaded[0].opt_steps == 7 for policy, _ in built.policies.made)
    assert not any(actor.restarts for actor in manager.stats())  # a policy without weights raises


def test_actors_load_only_newer_weights(backend: str) -> None:
    built = Built(backend, num_actors=1, n_buffer=1)
    with built.manager as manager:
        for version in range(5):
            manager.publish(snapshot(opt_steps=version))
            manager.permit(2 * version + 2)
            assert receive(manager, 2)[-1].opt_steps == version
    for policy, _ in built.policies.made:  # policies built in this process
        assert [weights.opt_steps for weights in policy.loaded] == [0, 1, 2, 3, 4]


def test_each_actor_gets_its_own_exploration_and_env_seed(backend: str, tmp_path: Path) -> None:
    built = Built(
        backend, folder=tmp_path, policies=TellingPolicyFactory(), num_actors=3, n_buffer=1,
        exploration=[0.0, {"noise_std": 0.5}, 1.0],
    )  # fmt: skip
    actions: dict[int, set[int]] = {}
    with built.manager as manager:
        start(manager)
        while len(actions) < 3:
            for message in manager.receive(0.1):
                actions.setdefault(message.actor_id, set()).update(
                    message.transitions.action.tolist()
                )
    assert actions == {0: {0}, 1: {50}, 2: {100}}
    assert len(set(built.scripted.noted("seed"))) == 3


def test_a_stop_pushes_what_is_under_way(backend: str) -> None:
    built = Built(backend, num_actors=1, n_buffer=1_000_000)
    with built.manager as manager:
        start(manager)
        arrived = manager.receive()  # steps a serial actor once
        while manager.stats()[0].env_steps < 1:
            arrived += manager.receive(0.01)
        arrived += manager.stop()
    stats = manager.stats()[0]
    assert count(arrived) == stats.env_steps == stats.samples > 0
    assert manager.stop() == []


def test_every_env_is_closed_at_the_end_also_after_an_error(backend: str, tmp_path: Path) -> None:
    built = Built(backend, folder=tmp_path, num_actors=4)

    def run() -> None:
        with built.manager as manager:
            start(manager)
            receive(manager, 1_000)
            raise KeyError("unrelated")

    with pytest.raises(KeyError, match="unrelated"):
        run()
    pids = built.scripted.noted("pid")
    assert len(built.scripted.noted("closed")) == len(pids) > 0


def test_a_failed_actor_is_rebuilt_and_every_sample_accounted_for(
    backend: str, tmp_path: Path
) -> None:
    built = Built(
        backend, lives=[Life(deed=fail, at=15)], folder=tmp_path, num_actors=1, n_buffer=4
    )
    with built.manager as manager:
        start(manager, 40)
        arrived = receive(manager, 40) + manager.stop()
    stats = manager.stats()[0]
    assert stats.restarts == 1
    assert stats.env_steps == 40 + stats.lost_samples
    # 14 rows were collected and three messages of 4 sent. A process that waited for its budget
    # has sent the rest as well.
    assert stats.lost_samples == 2 or (backend == "process" and stats.lost_samples < 4)
    assert count(arrived) == stats.samples == 40
    assert len(built.scripted.noted("closed")) == 2


def test_rows_of_one_episode_are_successive_steps_of_one_life(backend: str, tmp_path: Path) -> None:
    """All environments return the same observations, and two incarnations fail mid-episode."""
    built = Built(
        backend, lives=[Life(deed=fail, at=step) for step in (7, 26)], folder=tmp_path,
        num_actors=3, num_envs=2, n_buffer=5,
        step_processor=partial(NStep, NStepConfig(), gamma=0.99, num_envs=2),
        extras=[EPISODE_COLUMN],
    )  # fmt: skip
    with built.manager as manager:
        start(manager, 400)
        arrived = [kept(message) for message in receive(manager, 400)]
    steps: dict[int, list[float]] = {}
    for rows in [message.transitions for message in arrived]:
        assert isinstance(rows.obs, np.ndarray)
        for episode, obs in zip(
            rows.extras[EPISODE].tolist(), rows.obs[:, 0].tolist(), strict=True
        ):
            steps.setdefault(episode, []).append(obs)
    assert len(steps) > 6
    for observed in steps.values():
        assert observed[0] % 10 == 0
        assert observed == [observed[0] + step for step in range(len(observed))]
        assert len(observed) <= 10


def test_a_new_life_has_a_new_seed(backend: str, tmp_path: Path) -> None:
    built = Built(backend, lives=[Life(deed=fail, at=1)], folder=tmp_path, num_actors=1)
    with built.manager as manager:
        start(manager, 5)
        receive(manager, 5)
    first, second = built.scripted.noted("seed")
    assert first != second


def test_past_its_restarts_an_actor_ends_the_run_with_its_first_traceback(
    backend: str, tmp_path: Path
) -> None:
    lives = [Life(deed=fail, at=step) for step in (3, 2, 2)]  # all incarnations deliver samples
    built = Built(backend, lives=lives, folder=tmp_path, num_actors=1, max_restarts=2, n_buffer=1)

    with pytest.raises(ActorCrashed, match="the simulator broke at step 3"):
        receive_until_crash(built)
    assert built.manager.stats()[0].restarts == 2


def test_the_same_failure_before_a_new_actor_delivered_ends_the_run(
    backend: str, tmp_path: Path
) -> None:
    lives = [Life(deed=fail, at=step) for step in (9, 2, 2)]
    built = Built(backend, lives=lives, folder=tmp_path, num_actors=1, max_restarts=9, n_buffer=4)

    with pytest.raises(ActorCrashed, match="step 9; the restarted actor failed the same way"):
        receive_until_crash(built)
    assert built.manager.stats()[0].restarts == 1


def test_an_env_that_fails_to_build_counts_as_a_failed_life(backend: str, tmp_path: Path) -> None:
    lives = [Life(deed=fail, at=BUILDING)]
    built = Built(backend, lives=lives, folder=tmp_path, num_actors=1, max_restarts=0)

    with pytest.raises(ActorCrashed, match="the simulator broke at step 0"):
        receive_until_crash(built, 10)


def test_serial_actors_share_a_scarce_permission() -> None:
    built = Built("serial", num_actors=3, n_buffer=1)
    with built.manager as manager:
        manager.publish(snapshot())
        for permitted in range(1, 301):
            manager.permit(permitted)
            receive(manager, 1)
    assert [actor.samples for actor in manager.stats()] == [100, 100, 100]


def test_an_env_that_leaves_the_interpreter_is_a_failed_life_not_the_end(
    backend: str, tmp_path: Path
) -> None:
    built = Built(backend, lives=[Life(deed=leave, at=3)], folder=tmp_path, num_actors=1)
    with built.manager as manager:
        start(manager, 20)
        assert count(receive(manager, 20)) == 20
    assert manager.stats()[0].restarts == 1


def test_several_environments_step_in_whole_rounds_and_overshoot_by_less_than_one(
    backend: str,
) -> None:
    built = Built(backend, num_envs=3, num_actors=2, n_buffer=4)
    with built.manager as manager:
        start(manager, 50)
        arrived = receive(manager, 50) + [kept(message) for message in manager.stop()]
    assert count(arrived) == sum(actor.env_steps for actor in manager.stats())
    assert 50 <= count(arrived) <= 50 + 2 * 2  # every actor rounds up to a multiple of three
    assert count(arrived) % 3 == 0


def test_threads_that_do_nothing_but_act_are_bound_and_the_learners_is_not(backend: str) -> None:
    built = Built(backend, num_actors=2, n_buffer=4, policies=BoundPolicyFactory())
    with built.manager as manager:
        start(manager, 20)
        arrived = receive(manager, 20) + manager.stop()
    actions = np.concatenate([message.transitions.action for message in arrived])
    assert set(actions.tolist()) == {0 if backend == "serial" else 1}
