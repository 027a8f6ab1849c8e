"""Garbage collection while a command starts and exits."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.process.startup import paused_garbage_collection, resume_garbage_collection

AT_EXIT = """
import atexit, gc
atexit.register(lambda: print("frozen at the end:", gc.get_freeze_count() > 1000))
from border_cli.cli.train import main
main(["--version"])
print("frozen before:", gc.get_freeze_count())
"""


@pytest.fixture
def nothing_exempt() -> Iterator[None]:
    """Lets the garbage collector see all objects of this process, which `conftest.py` exempts."""
    gc.unfreeze()
    yield
    gc.collect()  # frozen garbage would never be freed
    gc.freeze()


def test_nothing_is_collected_while_a_command_starts() -> None:
    assert gc.isenabled()
    with paused_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("nothing_exempt")
def test_a_run_collects_and_passes_over_what_the_start_left() -> None:
    with paused_garbage_collection():
        resume_garbage_collection()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 1000
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_a_caller_has_exempted_stays_exempt() -> None:
    gc.collect()
    gc.freeze()
    before = gc.get_freeze_count()
    with paused_garbage_collection():
        kept = [[index] for index in range(100_000)]
        resume_garbage_collection()
    assert before - 1000 < gc.get_freeze_count() < before + len(kept)


def test_the_end_of_a_command_passes_over_all_that_is_loaded(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", AT_EXIT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    version, before, at_exit = process.stdout.splitlines()
    assert version.startswith("border_cli ")
    assert (before, at_exit) == ("frozen before: 0", "frozen at the end: True")
