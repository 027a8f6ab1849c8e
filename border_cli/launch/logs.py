"""The log of one job: on the terminal above the panel, and complete in border-train.log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from border_cli.recorder.terminal import ConsoleHandler

LOG_FILE = "border-train.log"
FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


@contextmanager
def job_log(folder: Path, console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block the log goes to `console` and to the file of the job.

    All handlers and levels are restored afterwards. The file is opened by the first line, when the
    folder is the job's own.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    raising = logging.raiseExceptions
    ours = ConsoleHandler(console)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.addFilter(lambda record: not hasattr(record, "file_only"))
    file = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
    file.setFormatter(logging.Formatter(FORMAT))
    root.handlers = [ours, file]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)
        logging.raiseExceptions = raising
        file.close()
