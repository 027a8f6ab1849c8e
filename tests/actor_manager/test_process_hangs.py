"""Processes of actors that hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.errors import ActorCrashed
from tests.support.actor_managers import Built, kept, receive, start, until
from tests.support.case_sampling import sampled
from tests.support.scripted_envs import Life, hang, hang_in_c


@pytest.mark.parametrize("deed", sampled([hang, hang_in_c], every=2))
def test_a_hang_is_revived_with_its_stack_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, deed: Callable[[int], None]
) -> None:
    built = Built(
        "process", lives=[Life(deed=deed, at=15)], folder=tmp_path, num_actors=1, n_buffer=100
    )
    with built.manager as manager:
        start(manager)
        built.scripted.wait_for("deed")
        (handle,) = manager.heartbeats()
        assert (handle.waiting_for, handle.name, handle.thread_id) == (None, "actor 0", None)
        beats = handle.beats
        assert handle.restart()
        arrived = receive(manager, 100)
        assert handle.beats > beats
        arrived += [kept(message) for message in manager.stop()]
    (stats,) = manager.stats()
    assert (stats.restarts, stats.lost_samples) == (1, 14)
    assert f"in {deed.__name__}" in caplog.text
    assert "making no step" in caplog.text


def test_a_hang_past_the_budget_ends_the_run_with_the_stack(tmp_path: Path) -> None:
    built = Built(
        "process", lives=[Life(deed=hang, at=3)], folder=tmp_path, num_actors=1, max_restarts=0
    )

    def run() -> None:
        with built.manager as manager:
            start(manager)
            built.scripted.wait_for("deed")
            assert manager.heartbeats()[0].restart()
            while True:
                manager.receive(5.0)

    with pytest.raises(ActorCrashed, match=r"(?s)making no step.*in hang"):
        run()


def test_an_actor_that_waits_for_the_learner_is_not_replaced(tmp_path: Path) -> None:
    built = Built("process", folder=tmp_path, num_actors=1, n_buffer=10)
    with built.manager as manager:
        start(manager, 10)
        receive(manager, 10)
        (handle,) = manager.heartbeats()
        until(lambda: handle.waiting_for is not None)
        assert "samples_per_opt_step" in str(handle.waiting_for)
        assert handle.restart()
        until(lambda: not handle.stuck)  # type: ignore[attr-defined] # the supervisor looked
        manager.permit(30)
        receive(manager, 20)
    assert manager.stats()[0].restarts == 0


def test_a_restart_that_never_happens_is_requested_only_once(tmp_path: Path) -> None:
    """If the first request has no effect, the watchdog must end the run instead."""
    built = Built("process", folder=tmp_path, num_actors=1)
    (handle,) = built.manager.heartbeats()  # no supervisor is running
    assert handle.restart()
    assert not handle.restart()
    built.manager.stop()


def test_a_process_that_does_not_stop_is_killed_and_named_with_its_stack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built = Built(
        "process", lives=[Life(deed=hang, at=15)] * 3, folder=tmp_path, num_actors=3,
        n_buffer=100, join_timeout_s=0.1,
    )  # fmt: skip
    with built.manager as manager:
        start(manager)
        built.scripted.wait_for("deed", 3)
        assert manager.stop() == []
    assert [actor.lost_samples for actor in manager.stats()] == [14] * 3
    assert caplog.text.count("did not stop in time") == 3
    assert caplog.text.count("in hang") == 3
