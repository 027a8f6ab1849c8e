"""What scripts rely on: exit statuses, and messages that name the way out."""

from __future__ import annotations

import signal

import pytest

from border_cli.core.errors import (
    ActorCrashed,
    ActorHung,
    BorderError,
    CheckpointError,
    ConfigError,
    Interrupted,
    MissingPackage,
    NotFinite,
    OutOfMemory,
    RunFailed,
    Stalled,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BorderError("x"), 1),
        (RunFailed("x"), 1),
        (ActorCrashed(0, 3, "Traceback\nValueError: mine"), 1),
        (ActorHung(0, 5.0, "stack"), 1),
        (Stalled("x"), 1),
        (NotFinite("x"), 1),
        (OutOfMemory("x"), 1),
        (ConfigError("x"), 2),
        (MissingPackage("env.id=X", "x"), 2),
        (CheckpointError("x"), 2),
        (Interrupted(signal.SIGINT), 130),
        (Interrupted(signal.SIGTERM), 143),
    ],
)
def test_every_expected_failure_has_its_exit_status(error: BorderError, status: int) -> None:
    assert error.exit_status == status


def test_an_interruption_names_its_signal() -> None:
    assert str(Interrupted(signal.SIGINT)) == "stopped by SIGINT"


def test_a_crash_shows_its_first_failure_in_its_first_line() -> None:
    text = "Traceback (most recent call last):\n  …\nValueError: mine\n"
    first_line, *rest = str(ActorCrashed(2, 3, text)).splitlines()
    assert first_line.startswith("actor 2 failed, first with ValueError: mine; its 3 restarts are")
    assert "ValueError: mine" in rest


def test_a_missing_package_comes_with_the_line_that_installs_it() -> None:
    assert str(MissingPackage("env.id=LunarLander-v3", "gymnasium[box2d]")).endswith(
        'pip install "gymnasium[box2d]"'
    )
    assert str(MissingPackage("env.id=X", "ale-py")).endswith("pip install ale-py")


def test_the_nearest_known_word_is_offered_and_nothing_where_none_is_near() -> None:
    assert did_you_mean("gama", ["batch_size", "gamma"]) == "; did you mean 'gamma'?"
    assert did_you_mean("zzz", ["batch_size", "gamma"]) == ""
    assert did_you_mean("gama", []) == ""
