"""The log of one job: on the terminal above the panel, and complete in border-train.log."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from rich.console import Console

from border_cli.core.files import not_through_links
from border_cli.core.words import visible
from border_cli.recorder.terminal import log_handler


class LogFile(logging.handlers.WatchedFileHandler):
    """Writes to the file of another handler, never through a link, and starts it again where it was
    deleted. A line that cannot be written is only missing there."""

    def __init__(self, instead_of: logging.FileHandler) -> None:
        super().__init__(instead_of.baseFilename, encoding="utf-8", delay=True)
        self.setFormatter(instead_of.formatter)
        self.setLevel(instead_of.level)
        self.filters = list(instead_of.filters)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=not_through_links)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, to a new file where the folder still stands and the old one is gone."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class _Visible(logging.Formatter):
    """Escapes what would control the terminal on which the file is read later."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return visible(self._formatter.format(record))


@contextmanager
def job_log(console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block the log goes to `console` and to the file that Hydra opened for the job.

    Hydra's own handlers would write through the panel, and into whatever replaced the file. All
    handlers and levels are restored afterwards.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    raising = logging.raiseExceptions
    ours = log_handler(console)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.addFilter(lambda record: not hasattr(record, "file_only"))
    files = [each for each in before if isinstance(each, logging.FileHandler)]
    opened = [LogFile(each) if type(each) is logging.FileHandler else each for each in files]
    formatters = [each.formatter for each in opened]
    for each in opened:
        each.setFormatter(_Visible(each.formatter or logging.Formatter()))
    root.handlers = [ours, *opened]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        for each, formatter in zip(opened, formatters, strict=True):
            each.setFormatter(formatter)
        for each in set(opened) - set(files):
            each.close()
        root.handlers = before
        root.setLevel(level)
        logging.raiseExceptions = raising
