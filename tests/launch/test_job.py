"""The log file of a job, and what a refused job prints and logs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rich.console import Console

from border_cli.config.compose import Composer
from border_cli.launch.job import job_log, train_job
from tests.support.commands import QUICK


def test_lines_go_to_the_file_and_handlers_come_back(folder: Path) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    for _ in range(2):  # a resumed run appends to the file
        with job_log(folder, Console(quiet=True), quiet=True):
            logging.getLogger("border_cli.test").info("one")
    lines = (folder / "border-train.log").read_text().splitlines()
    assert [line.partition("]")[2] for line in lines] == ["[border_cli.test][INFO] - one"] * 2
    assert (root.handlers, root.level) == (before, level)


def test_a_run_refused_in_the_directory_of_a_finished_run_does_not_report_that_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run may use the directory after the command has checked that it is free."""
    typed = ["agent=dqn", "env=cartpole", "quiet=true", "run_dir=one", "recorder=none", *QUICK]
    job = Composer().job(typed)
    assert train_job(job).exit_status == 0
    log = (folder / "one/border-train.log").read_text()
    capsys.readouterr()
    outcome = train_job(job)
    assert (outcome.status, outcome.exit_status) == ("failed", 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "border-train: one already contains a run: choose another run_dir, or add resume=auto\n"
    )
    assert (folder / "one/border-train.log").read_text() == log
