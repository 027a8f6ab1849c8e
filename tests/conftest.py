"""Every test leaves no thread, process or segment behind. Pytest itself ends one that hangs."""

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
from tests.support import leftovers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it

TQDM_THREAD = "tqdm_monitor"  # one per process, of the bars of torch.compile
GRACE_S = 5.0

# Its handler keeps the `sys.stderr` of its first import, which within a test is pytest's own file,
# and closes it where logging is configured anew.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that has nothing left takes tests from another one."""
    return WorkStealingScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker waits for another one's at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage, and nothing of it is looked at again for garbage."""
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
    begun = [
        each
        for each in set(threading.enumerate()) - threads
        # Nobody can join a thread that torch's autograd has begun for a GPU.
        if each.name != TQDM_THREAD and not isinstance(each, threading._DummyThread)
    ]
    for thread in begun:
        thread.join(GRACE_S)
    left = [thread.name for thread in begun if thread.is_alive()]
    assert not left, f"threads left behind: {left}"
    assert not multiprocessing.active_children()
    alive = leftovers.wait_until_gone(leftovers.processes() - processes, GRACE_S)
    assert not alive, f"processes left behind: {alive}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the search path and the log handlers put back afterwards."""
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
    """Writes a file of the user."""

    def _write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def own_modules(folder: Path) -> Iterator[None]:
    """Modules of the folder can be imported; what they register is gone afterwards."""
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
