"""The log of a job."""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console

from border_cli.launch.job import job_log


def test_lines_go_to_the_file_and_handlers_come_back(folder: Path) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    for _ in range(2):  # a run that is resumed goes on in its file
        with job_log(folder, Console(quiet=True), quiet=True):
            logging.getLogger("border_cli.test").info("one")
    lines = (folder / "border-train.log").read_text().splitlines()
    assert [line.partition("]")[2] for line in lines] == ["[border_cli.test][INFO] - one"] * 2
    assert (root.handlers, root.level) == (before, level)
