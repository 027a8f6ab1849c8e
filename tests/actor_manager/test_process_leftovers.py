"""Threads, files and shared memory of a manager of processes are released."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.support import leftovers
from tests.support.actor_managers import Built, receive, start
from tests.support.case_sampling import ALL
from tests.support.scripted_envs import Life, die

MANAGERS = 20 if ALL else 6


@pytest.mark.slow
def test_many_managers_leave_threads_files_and_segments_as_they_were(tmp_path: Path) -> None:
    def run(number: int) -> tuple[set[threading.Thread], list[str], int]:
        folder = tmp_path / str(number)
        folder.mkdir()
        built = Built(
            "process", lives=[Life(deed=die, at=3)], folder=folder, num_actors=2, n_buffer=4
        )
        with built.manager as manager:
            start(manager, 20)
            receive(manager, 20)
        del built, manager
        gc.collect()
        files = sorted(leftovers.open_files().values())
        return set(threading.enumerate()), files, leftovers.segments()

    gc.collect()  # garbage of earlier tests
    before = leftovers.segments()
    first = run(0)
    for number in range(1, MANAGERS):
        last = run(number)
    assert last == first
    assert last[2] == before


def test_restarts_leave_no_open_file_behind(tmp_path: Path) -> None:
    gc.collect()  # garbage of earlier tests
    built = Built("process", folder=tmp_path, num_actors=1, n_buffer=1, max_restarts=3)
    with built.manager as manager:
        start(manager, 1)
        receive(manager, 1)
        before = sorted(target[:4] for target in leftovers.open_files().values())
        for life in range(1, 4):
            os.kill(int(built.scripted.noted("pid")[-1]), signal.SIGKILL)
            built.scripted.wait_for("seed", life + 1)
            manager.permit(life + 1)
            manager.permit(life + 1)  # the limit no longer grows: the rest is granted
            receive(manager, 1)
        assert sorted(target[:4] for target in leftovers.open_files().values()) == before


def test_a_manager_that_never_started_leaves_no_file_behind() -> None:
    gc.collect()  # garbage of earlier tests
    before = leftovers.open_files(), leftovers.segments()
    built = Built("process", num_actors=2)
    assert leftovers.segments() > before[1]
    del built
    gc.collect()
    assert (leftovers.open_files(), leftovers.segments()) == before
