"""Processes and shared memory after the parent was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from border_cli.system.start import StartMethod
from tests.support import leftovers

ROOT = Path(__file__).parents[2]
SCRIPT = [sys.executable, "-m", "tests.support.orphans"]
GONE_S = 5.0


def process_tree(pid: int) -> set[int]:
    """Returns a process and all of its descendants."""
    return {pid} | leftovers.below(pid)


def noted(folder: Path, what: str) -> set[int]:
    return {int(file.read_text()) for file in folder.glob(f"{what}-*") if file.suffix != ".part"}


@pytest.mark.parametrize(
    "start_method",
    [StartMethod.forkserver, pytest.param(StartMethod.spawn, marks=pytest.mark.slow)],
)
def test_a_killed_parent_leaves_no_process_and_no_segment(
    tmp_path: Path, start_method: StartMethod
) -> None:
    """One simulator never returns and never releases the GIL."""
    segments = leftovers.named_segments()
    with subprocess.Popen(
        [*SCRIPT, tmp_path, start_method], stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        processes = process_tree(parent.pid)
        assert noted(tmp_path, "pid") <= processes
        assert len(noted(tmp_path, "pid")) == 2
        parent.kill()
    assert not leftovers.wait_until_gone(processes, GONE_S)
    assert leftovers.named_segments() <= segments


def test_a_fork_of_the_parent_does_not_keep_its_actors_alive(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*SCRIPT, tmp_path, "forkserver", "sibling"], stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        actors = noted(tmp_path, "pid")
        parent.kill()
        parent.stdout.close()
        alive = leftovers.wait_until_gone(actors, GONE_S)
        for pid in noted(tmp_path, "sibling"):
            os.kill(pid, signal.SIGKILL)
    assert len(actors) == 2
    assert not alive
