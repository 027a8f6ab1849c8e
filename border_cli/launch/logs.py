"""The log of one job: on the terminal above the panel, and complete in border-train.log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from border_cli.recorder.terminal import ConsoleHandler


@contextmanager
def job_log(console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block the log goes to `console` and to the file that Hydra opened for the job.

    Hydra's own handler for the terminal would write through the panel. All handlers and levels are
    restored afterwards.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    raising = logging.raiseExceptions
    ours = ConsoleHandler(console)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.addFilter(lambda record: not hasattr(record, "file_only"))
    root.handlers = [ours, *(each for each in before if isinstance(each, logging.FileHandler))]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)
        logging.raiseExceptions = raising
