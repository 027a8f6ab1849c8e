"""The log file of a job, which is Hydra's, and what is restored after it."""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console

from border_cli.launch.logs import job_log


def test_lines_go_to_the_file_and_handlers_come_back(folder: Path) -> None:
    path = folder / "border-train.log"
    opened = logging.FileHandler(path)
    opened.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(opened)
    before, level = list(root.handlers), root.level
    with job_log(Console(quiet=True), quiet=True):
        logging.getLogger("border_cli.test").info("one")
    assert path.read_text() == "INFO one\n"
    assert (root.handlers, root.level) == (before, level)
    opened.close()
