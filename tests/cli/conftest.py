"""Commands run in this process, in a folder of their own, with a stand-in for training."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from border_cli.cli.train import main
from border_cli.cli.training_job import JobContext
from border_cli.config.resuming import Found, attempt
from border_cli.core.config import RunConfig
from border_cli.launch.effective import EffectiveSettings

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the search path and the log handlers put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BORDER_CONFIG_PATH", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield tmp_path
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


class Jobs:
    """Stands in for training: remembers what it is asked, and saves its settings."""

    def __init__(self) -> None:
        self.configs: list[RunConfig] = []
        self.contexts: list[JobContext] = []
        self.found: list[Found] = []

    def __call__(self, effective: EffectiveSettings, context: JobContext) -> float:
        config = effective.config
        self.configs.append(config)
        self.contexts.append(context)
        with attempt(context.run_dir, config, context.record, trust=context.trust) as begun:
            self.found.append(begun.found)
            begun.confirm()
        return float(config.seed)


@pytest.fixture
def ran(folder: Path) -> Callable[..., Jobs]:
    """Runs a command that must be accepted."""
    assert folder

    def _ran(*argv: str) -> Jobs:
        jobs = Jobs()
        main(argv, run_job=jobs)
        return jobs

    return _ran


@pytest.fixture
def refusal(folder: Path, capsys: Capture) -> Callable[..., str]:
    """Runs what must be refused with status 2 and no new file; returns what is said."""

    def _refusal(*argv: str) -> str:
        before = sorted(folder.rglob("*"))
        with pytest.raises(SystemExit) as left:
            main(argv, run_job=Jobs())
        assert left.value.code == 2
        assert sorted(folder.rglob("*")) == before
        said = capsys.readouterr().err
        assert said.startswith("border-train: ")
        assert "Traceback" not in said
        return said

    return _refusal
