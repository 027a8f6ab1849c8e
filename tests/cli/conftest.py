"""Fixtures that run commands in this process, in a temporary directory, without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.checks import env_report
from border_cli.cli import train
from border_cli.config.job import Job
from border_cli.launch.attempt import start_attempt
from border_cli.run.run_folder import EarlierRun
from border_cli.settings.run import RunConfig
from tests.support.commands import train_status

Capture = pytest.CaptureFixture[str]


class Jobs:
    """A stand-in for training that records the jobs it receives and saves their settings."""

    def __init__(self) -> None:
        self.configs: list[RunConfig] = []
        self.jobs: list[Job] = []
        self.earlier: list[EarlierRun] = []

    def __call__(self, job: Job) -> None:
        self.configs.append(job.config)
        self.jobs.append(job)
        with start_attempt(job) as this_attempt:
            self.earlier.append(this_attempt.earlier)
            if this_attempt.earlier.resumes:
                this_attempt.save_settings()


@pytest.fixture(autouse=True)
def short_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `border-env` and dry runs play for a fifth of a second instead of a whole one."""
    monkeypatch.setattr(env_report, "PLAYED_S", 0.2)


@pytest.fixture
def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Jobs]:
    """Runs a command that must be accepted; returns the jobs it would have trained."""
    assert folder

    def _ran(*argv: str) -> Jobs:
        jobs = Jobs()
        monkeypatch.setattr(train, "run_one", jobs)
        monkeypatch.setattr(train, "run_several", lambda plan: [*map(jobs, plan.jobs)])
        train.main(argv)
        return jobs

    return _ran


@pytest.fixture
def refusal(folder: Path, capsys: Capture) -> Callable[..., str]:
    """Runs a command that must exit with status 2 and create no file; returns its error message."""

    def _refusal(*argv: str) -> str:
        before = sorted(folder.rglob("*"))
        assert train_status(*argv) == 2
        assert sorted(folder.rglob("*")) == before
        said = capsys.readouterr().err
        assert said.startswith("border-train: ")
        assert "Traceback" not in said
        return said

    return _refusal
