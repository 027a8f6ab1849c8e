"""Exit statuses of errors, and messages that name the remedy."""

from __future__ import annotations

import pickle
import signal

import pytest

from border_cli.errors import (
    ActorCrashed,
    BadStep,
    BorderError,
    CheckpointError,
    ConfigError,
    Interrupted,
    MissingPackage,
    ProbeFailed,
    RunFailed,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunFailed("x"), 1),
        (ConfigError("x"), 2),
        (MissingPackage("env.id=X", "x"), 2),
        (ProbeFailed("x"), 2),
        (CheckpointError("x"), 2),
        (Interrupted(signal.SIGINT), 130),
        (Interrupted(signal.SIGTERM), 143),
    ],
)
def test_every_expected_failure_has_its_exit_status(error: BorderError, status: int) -> None:
    assert error.exit_status == status


def test_a_crash_shows_its_first_failure_in_its_first_line() -> None:
    text = (
        'Traceback (most recent call last):\n  File "mine.py", line 3, in step\n    …\n'
        "ValueError: mine\nand more of it\n"
    )
    first_line, *rest = str(ActorCrashed(2, "no restart is left", text)).splitlines()
    assert first_line.startswith("actor 2 failed, first with ValueError: mine; no restart is left")
    assert "ValueError: mine" in rest


def test_a_missing_package_comes_with_the_line_that_installs_it() -> None:
    assert str(MissingPackage("env.id=LunarLander-v3", "gymnasium[box2d]")).endswith(
        'pip install "gymnasium[box2d]"'
    )
    assert str(MissingPackage("env.id=X", "ale-py")).endswith("pip install ale-py")


def test_a_bad_step_says_from_outside_in_where_it_happened_also_past_a_process() -> None:
    error = BadStep("the reward None is not a number").within("env.id=X").of_actor(2, 1_234)
    crossed = pickle.loads(pickle.dumps(error))
    assert type(crossed) is BadStep
    message = "actor 2, after 1,234 env steps: env.id=X: the reward None is not a number"
    assert str(crossed) == message
