"""What foreign code may change of this process, and how it is put back.

An environment's constructor runs here: it can ignore Ctrl-C, go to another folder, or take the log
away, for all that comes after it.

Restored and reported once: current directory, signal handlers, `sys.stdout` and `stderr`,
excepthooks, root logger, warning filters, numpy's error handling, torch and BLAS threads, locale,
faulthandler. Constructors run one at a time, so that before and after can be compared exactly; the
first episodes are compared if the main thread starts them. Handlers installed by C code are
restored for the signals that a run listens to or would die of (in any thread), and left alone for
all others: the virtual machines of Java and Julia need their SIGSEGV handlers.
"""

from __future__ import annotations

import ctypes
import faulthandler
import locale
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from border_cli.core.threads import blas_threads, set_blas_threads

log = logging.getLogger(__name__)

# Signals that a run handles, or that would end it. Of all others C code may have
# its own: the machines of Java, Julia and Go need theirs for SIGSEGV and its like.
HEARD = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGTSTP", "SIGCONT")
    if hasattr(signal, name)
]
_ACTION_NBYTES = 256  # more than any system's `struct sigaction`
_ADDRESS_NBYTES = ctypes.sizeof(ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can be changed. `read` gives None where it is not to be kept."""

    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any], object]
    only_main_thread: bool = False  # looked at there alone


def _folder() -> str | None:
    with suppress(OSError):  # it was removed
        return os.getcwd()  # noqa: PTH109 - a Path would cost more than the question
    return None


FOLDER = Kind("the current directory", _folder, os.chdir)


def _handlers() -> list[Kind]:
    signums = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    # Without the search for a name of each handler, which takes most of the time.
    ask = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
    return [
        Kind(
            f"the handler of {signum.name}",
            partial(ask, signum),
            partial(signal.signal, signum),
            only_main_thread=True,
        )
        for signum in sorted(signums)
    ]


@dataclass(frozen=True, slots=True)
class _Action:
    """What the kernel does on a signal; equal where it calls the same function."""

    function: bytes
    whole: bytes = field(compare=False)


def _actions() -> list[Kind]:
    """The same as C code can change it, in any thread. Python does not notice that."""
    try:
        sigaction = ctypes.PyDLL(None).sigaction
    except (AttributeError, OSError, TypeError):  # not a system with POSIX signals
        return []

    def read(signum: int) -> _Action:
        action = ctypes.create_string_buffer(_ACTION_NBYTES)
        sigaction(signum, None, action)
        return _Action(action.raw[:_ADDRESS_NBYTES], action.raw)

    def put_back(signum: int, before: _Action) -> None:
        sigaction(signum, before.whole, None)

    return [
        Kind(f"the handler of {each.name}", partial(read, each), partial(put_back, each))
        for each in HEARD
    ]


def _wakeup_file() -> int:
    """Where the C handlers write the numbers of signals; there is no other way to read it."""
    file = signal.set_wakeup_fd(-1)
    _set_wakeup_file(file)
    return file


def _set_wakeup_file(file: int) -> None:
    signal.set_wakeup_fd(file, warn_on_full_buffer=False)


def _attribute(module: Any, name: str, read: Callable[[Any], Any] = lambda value: value) -> Kind:
    return Kind(
        f"{module.__name__}.{name}",
        lambda: read(getattr(module, name)),
        partial(setattr, module, name),
    )


def _stream(value: Any) -> Any:
    """Behind the panel's own, which comes and goes while actors are built in their threads."""
    return getattr(value, "rich_proxied_file", value)


def _logging() -> tuple[list[logging.Handler], int, int, bool]:
    root = logging.getLogger()
    return list(root.handlers), root.level, root.manager.disable, log.disabled


def _put_logging_back(before: tuple[list[logging.Handler], int, int, bool]) -> None:
    root = logging.getLogger()
    root.handlers[:], level, root.manager.disable, disabled = before
    root.setLevel(level)
    for name, logger in root.manager.loggerDict.items():
        # `logging.config` disables all loggers that it does not know.
        if name.startswith("border_cli.") and isinstance(logger, logging.Logger):
            logger.disabled = disabled


def _put_filters_back(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    with warnings.catch_warnings():  # its end makes the interpreter read them again
        pass


def _numpy_errors() -> Any:
    import numpy as np  # only now: a command that is refused never needs it

    return np.geterr()


def _set_numpy_errors(before: Any) -> None:
    import numpy as np

    np.seterr(**before)


def _torch_threads() -> int | None:
    ask = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if ask is None else int(ask())


def _set_torch_threads(before: int) -> None:
    sys.modules["torch"].set_num_threads(before)


def everything() -> list[Kind]:
    """All that is put back in a process of ours."""
    return [
        FOLDER,
        *_handlers(),
        *_actions(),  # behind them: what Python puts back here is as it was by then
        Kind("signal.set_wakeup_fd", _wakeup_file, _set_wakeup_file, only_main_thread=True),
        _attribute(sys, "stdout", _stream),
        _attribute(sys, "stderr", _stream),
        _attribute(sys, "excepthook"),
        _attribute(threading, "excepthook"),
        Kind("the root logger", _logging, _put_logging_back),
        Kind(
            "the warning filters",
            lambda: list(warnings.filters),
            _put_filters_back,
            only_main_thread=True,  # which changes them for moments, also while other threads run
        ),
        Kind("numpy's error handling", _numpy_errors, _set_numpy_errors),
        Kind("torch's number of threads", _torch_threads, _set_torch_threads),
        Kind("the number of threads of numpy's BLAS", blas_threads, set_blas_threads),
        Kind("the locale", partial(locale.setlocale, locale.LC_ALL), _set_locale),
        Kind(
            "faulthandler",
            faulthandler.is_enabled,
            lambda before: faulthandler.enable() if before else faulthandler.disable(),
        ),
    ]


def _set_locale(before: str) -> None:
    locale.setlocale(locale.LC_ALL, before)


class _Keeper:
    """Knows what is put back, and what was reported of it."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._reported: set[tuple[str, str]] = set()

    @contextmanager
    def unchanged(self, who: str) -> Iterator[None]:
        main = threading.current_thread() is threading.main_thread()
        before = [(kind, kind.read()) for kind in self._kinds if main or not kind.only_main_thread]
        try:
            yield
        finally:
            self._compare(who, before)

    def _compare(self, who: str, before: Sequence[tuple[Kind, Any]]) -> None:
        changed = []
        for kind, value in before:
            if value is None or kind.read() == value:
                continue
            try:
                kind.put_back(value)
                changed.append(f"{kind.name}; it was restored")
            except (OSError, ValueError) as error:  # the folder was removed
                changed.append(f"{kind.name}, which cannot be restored: {error}")
        for name in changed:  # by now there is a log again
            if (who, name) not in self._reported:
                self._reported.add((who, name))
                log.warning("%s changed %s", who, name)


_keeper = _Keeper([FOLDER])


@contextmanager
def keeping_everything() -> Iterator[None]:
    """Within the block `unchanged` puts back all of `everything`, and not the folder alone.

    For commands and child processes. In a process that only uses this package the rest belongs to
    its author.
    """
    global _keeper
    before, _keeper = _keeper, _Keeper(everything())
    try:
        yield
    finally:
        _keeper = before


@contextmanager
def unchanged(who: str) -> Iterator[None]:
    """Puts back what the block changed of this process; logs it once, with the name `who`.

    One block at a time: whatever changes meanwhile counts as changed by the block.
    """
    with _keeper.unchanged(who):
        yield
