"""Every test runs under a watchdog and leaves no thread, process or segment behind."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import threading
from collections.abc import Iterator
from typing import TextIO

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import leftovers
import pytest

HANG_S = 120.0  # then all stacks are printed and the run of the tests ends
GRACE_S = 5.0
TERMINAL = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """While a test runs, its own standard error is a file that nobody reads after a hang."""
    config.stash[TERMINAL] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[TERMINAL].close()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    threads, processes = set(threading.enumerate()), leftovers.processes()
    terminal = request.config.stash[TERMINAL]
    faulthandler.dump_traceback_later(HANG_S, exit=True, file=terminal)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    for thread in set(threading.enumerate()) - threads:
        thread.join(GRACE_S)
    left = [thread.name for thread in set(threading.enumerate()) - threads]
    assert not left, f"threads left behind: {left}"
    assert not multiprocessing.active_children()
    alive = leftovers.wait_until_gone(leftovers.processes() - processes, GRACE_S)
    assert not alive, f"processes left behind: {alive}"
