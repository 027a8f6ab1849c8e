"""The log of one job: readable beside a panel, complete in the file, gone afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from border_cli.core.foreign import visible
from border_cli.recorder.terminal import log_handler

FILE_ONLY = {"file_only": True}  # `extra` of a record that the terminal has shown in its own way


class _Visible(logging.Formatter):
    """Escapes what would steer the terminal on which the file is read one day."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return visible(self._formatter.format(record))


@contextmanager
def job_log(console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block the log goes to `console` and to the file that Hydra opened for the job.

    Hydra's own handler would write through the panel. Every handler and level comes back.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    raising = logging.raiseExceptions
    ours = log_handler(console)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.addFilter(lambda record: not hasattr(record, "file_only"))
    files = [each for each in before if isinstance(each, logging.FileHandler)]
    formatters = [each.formatter for each in files]
    for each in files:
        each.setFormatter(_Visible(each.formatter or logging.Formatter()))
    root.handlers = [ours, *files]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        for each, formatter in zip(files, formatters, strict=True):
            each.setFormatter(formatter)
        root.handlers = before
        root.setLevel(level)
        logging.raiseExceptions = raising
