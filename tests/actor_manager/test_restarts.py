"""Restart budgets of actors, and the delays before restarts."""

from __future__ import annotations

import traceback

import pytest

from border_cli.actor_manager.restarts import Restarts
from border_cli.errors import ActorCrashed


def test_the_pause_doubles_to_five_seconds_and_a_delivery_makes_it_short_again() -> None:
    restarts = Restarts(0, 100)
    assert [restarts.record_failure("boom", delivered=0) for _ in range(8)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        5.0,
        5.0,
    ]
    assert [restarts.record_failure("boom", delivered=1) for _ in range(2)] == [0.1, 0.2]


def traceback_of(kind: type[Exception], message: str, *, elsewhere: bool = False) -> str:
    """Returns a traceback as an actor in a thread or a process reports it."""
    try:
        if elsewhere:
            raise kind(message)
        raise kind(message)
    except kind:
        return traceback.format_exc()


def test_the_same_failure_again_before_a_delivery_ends_it_whatever_its_message() -> None:
    restarts = Restarts(4, 3)
    restarts.record_failure(traceback_of(ValueError, "at step 1"), delivered=0)
    again = r"(?s)at step 1; the restarted actor failed the same way before .*at step 1"
    with pytest.raises(ActorCrashed, match=again):
        restarts.record_failure(traceback_of(ValueError, "at step 2"), delivered=0)
    assert restarts.count == 1


@pytest.mark.parametrize(
    "said",
    [
        "signal only works in main thread of the main interpreter",
        "There is no current event loop in thread 'actor 0'.",
    ],
)
def test_a_failure_outside_of_the_main_thread_names_where_actors_have_one(said: str) -> None:
    with pytest.raises(ActorCrashed, match="actor_manager=process and serial run it in"):
        Restarts(0, 0).record_failure(traceback_of(ValueError, said), delivered=0)


def test_a_delivery_between_two_equal_failures_makes_the_second_a_new_one() -> None:
    restarts = Restarts(0, 3)
    for count in (1, 2, 3):
        restarts.record_failure(traceback_of(ValueError, "x"), delivered=count)
        assert restarts.count == count


def test_another_type_or_another_line_is_another_failure() -> None:
    restarts = Restarts(0, 3)
    restarts.record_failure(traceback_of(ValueError, "x"), delivered=0)
    restarts.record_failure(traceback_of(KeyError, "x"), delivered=0)
    restarts.record_failure(traceback_of(KeyError, "x", elsewhere=True), delivered=0)
    assert restarts.count == 3


def test_the_last_exception_of_a_chain_is_compared() -> None:
    cause = traceback_of(ValueError, "the cause")
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    restarts = Restarts(0, 3)
    restarts.record_failure(cause + chained + traceback_of(KeyError, "x"), delivered=0)
    with pytest.raises(ActorCrashed, match="failed the same way"):
        restarts.record_failure(traceback_of(KeyError, "y"), delivered=0)


@pytest.mark.parametrize(
    "death",
    [
        "its process was killed by SIGKILL (out of memory?)",
        "its process exited unexpectedly",
        'Current thread 0x1 (most recent call first):\n  File "a.py", line 3 in step\n'
        "killed after making no step for trainer.stall_timeout_s",
    ],
)
def test_deaths_of_processes_always_use_the_budget(death: str) -> None:
    restarts = Restarts(0, 2)
    restarts.record_failure(death, delivered=0)
    restarts.record_failure(death, delivered=0)
    with pytest.raises(
        ActorCrashed, match=r"no restarts are left \(actor_manager.max_restarts=2\)"
    ):
        restarts.record_failure(death, delivered=0)


def test_lines_of_users_code_are_compared_and_lines_of_ours_are_not() -> None:
    ours, theirs = "/border_cli/actor_manager/actor.py", "/home/me/env.py"
    package = Restarts.__module__.partition(".")[0]
    home = __import__(package).__file__.removesuffix("/border_cli/__init__.py")

    def traceback_at(line: int) -> str:
        return (
            "Traceback (most recent call last):\n"
            f'  File "{home}{ours}", line {line}, in step\n    self._env.step(action)\n'
            f'  File "{theirs}", line 7, in step\n    boom()\n    ^^^^^^\n'
            "licences.NoLicence\n"
        )

    restarts = Restarts(0, 3)
    restarts.record_failure(traceback_at(10), delivered=0)
    with pytest.raises(ActorCrashed, match=r"first with licences\.NoLicence; .* the same way"):
        restarts.record_failure(traceback_at(20), delivered=0)
