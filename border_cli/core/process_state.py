"""What an environment's constructor may not change of the process in which it runs.

It can ignore Ctrl-C, go to another folder, or take the log away, for all that comes after it. The
current directory, Python's signal handlers and the root logger are put back, and that is said once.
Constructors run one at a time, so that before and after can be compared.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


@contextmanager
def unchanged(who: str) -> Iterator[None]:
    """Puts back what the block changes of this process; logs it once, with the name `who`.

    One block at a time: whatever changes meanwhile counts as changed by the block.
    """
    folder, handlers, logging_before = _folder(), _handlers(), _logging()
    changed = []
    try:
        yield
    finally:
        if folder is not None and _folder() != folder:
            os.chdir(folder)
            changed.append("the current directory")
        for signum, handler in handlers.items():
            if signal.getsignal(signum) != handler:
                signal.signal(signum, handler)
                changed.append(f"the handler of {signal.Signals(signum).name}")
        if _logging() != logging_before:
            _put_logging_back(*logging_before)
            changed.append("the root logger")
        for each in changed:  # by now there is a log again
            _say_once(who, each)


@cache
def _say_once(who: str, what: str) -> None:
    log.warning("%s changed %s; it was restored", who, what)


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _handlers() -> dict[int, Any]:
    """Those that Python installed, where they can be changed; C code's own it cannot put back."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {each: signal.getsignal(each) for each in signal.valid_signals()}
    return {each: handler for each, handler in found.items() if handler is not None}


def _logging() -> tuple[list[logging.Handler], int, int, bool]:
    root = logging.getLogger()
    return list(root.handlers), root.level, root.manager.disable, log.disabled


def _put_logging_back(
    handlers: list[logging.Handler], level: int, disable: int, disabled: bool
) -> None:
    root = logging.getLogger()
    root.handlers[:], root.manager.disable = handlers, disable
    root.setLevel(level)
    for name, logger in root.manager.loggerDict.items():
        # `logging.config` disables all loggers that it does not know.
        if name.startswith("border_cli.") and isinstance(logger, logging.Logger):
            logger.disabled = disabled
