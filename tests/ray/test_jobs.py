"""`hydra/launcher=ray` without a cluster: invalid settings, and a child process that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from border_cli.errors import RunFailed
from border_cli.ray import sweep
from tests.support.case_sampling import sampled
from tests.support.commands import train_status

SWEEP = ("-m", "env=cartpole", "seed=0,1", "hydra/launcher=ray")


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            ("hydra.launcher.jobs=0", "hydra.launcher.jobs must be null or at least 1, got 0"),
            ("hydra.launcher.adress=auto", "did you mean hydra.launcher.address?"),
        ],
        every=3,
    ),
)
def test_settings_of_the_launcher_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert train_status(*SWEEP, typed) == 2
    assert said in capsys.readouterr().err
    assert not list(folder.iterdir())


def break_down(*_: Any) -> None:
    raise ZeroDivisionError("a mistake in the child")


def test_a_child_that_fails_before_it_is_connected_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "run_jobs", break_down)
    launcher = sweep.RayLauncher({"address": "auto", "resources": {}, "jobs": None})
    with pytest.raises(RunFailed, match=r"(?s)cannot connect to Ray: .*a mistake in the child"):
        launcher.starts(folder).__enter__()
