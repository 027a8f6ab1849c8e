"""Fixtures of all tests, and the check that a test leaves no thread or process behind."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import absl.logging
import pytest
from xdist.scheduler import WorkStealingScheduling

from border_cli.registry import GROUPS, NETWORKS, register_builtin
from tests.support import hydra_shortcuts, leftovers

# A suite in the background inherits SIGINT as ignored, and one under nohup SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

hydra_shortcuts.take_shortcuts()

TQDM_THREAD = "tqdm_monitor"  # one per process, started by the progress bars of torch.compile
GRACE_S = 5.0

# The handler of absl stores `sys.stderr` at its first import, which within a test is pytest's file,
# and closes that file when logging is configured again.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Lets an idle worker take tests from another one."""
    return WorkStealingScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts the longest tests first, so that no worker is idle at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables garbage collection while tests are collected, and exempts the items from it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    threads, processes = set(threading.enumerate()), leftovers.processes()
    yield
    new = [
        candidate
        for candidate in set(threading.enumerate()) - threads
        # A thread that torch's autograd starts for a GPU cannot be joined.
        if candidate.name != TQDM_THREAD and not isinstance(candidate, threading._DummyThread)
    ]
    for thread in new:
        thread.join(GRACE_S)
    left = [thread.name for thread in new if thread.is_alive()]
    assert not left, f"threads left behind: {left}"
    assert not multiprocessing.active_children()
    alive = leftovers.wait_until_gone(leftovers.processes() - processes, GRACE_S)
    assert not alive, f"processes left behind: {alive}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary current directory; the search path and the log handlers are restored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BORDER_CONFIG_PATH", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield tmp_path
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def write(folder: Path) -> Callable[[str, str], Path]:
    """A function that writes a file below `folder`."""

    def _write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def own_modules(folder: Path) -> Iterator[None]:
    """Makes modules in `folder` importable; afterwards removes them and what they registered."""
    register_builtin()
    before = {group: dict(registry._entries) for group, registry in GROUPS.items()}
    networks = dict(NETWORKS._targets)
    modules = set(sys.modules)
    sys.path.append(str(folder))
    yield
    for group, registry in GROUPS.items():
        registry._entries = before[group]
    NETWORKS._targets = networks
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
