"""A disk that fills up in the middle of a save: said, counted, and nothing saved is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import full_disk
from saves import SmallRun

from border_cli.run.finding import resumable

SUPPORT = Path(__file__).parents[1] / "support"


def everything(folder: Path) -> dict[str, bytes]:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


# What is pushed, and the size beyond which no file may grow: 48 bytes a row in a chunk, about 1 KB
# of state, and 8 KB of manifest, which names 50 chunks.
@pytest.mark.parametrize(
    ("place", "push", "limit"),
    [
        ("chunk", 400, 10_000),
        ("header of a chunk", 400, 100),
        ("agent", 0, 0),
        ("manifest", 1, 4000),
    ],
)
def test_a_limit_in_the_middle_of_any_file_leaves_what_was_saved(
    tmp_path: Path, place: str, push: int, limit: int
) -> None:
    del place
    case = SmallRun(tmp_path, capacity=500)
    for _ in range(50):
        case.save(10, push=1)
    before = everything(case.folder)
    with full_disk(limit):
        assert not case.save(20, push=push)
        assert not case.save(20, push=push)
    assert everything(case.folder) == before
    report = case.store.report
    assert (report.failures, report.written) == (2, 50)
    assert "File too large" in str(report.problem)
    assert case.save(20, push=10)  # there is room again
    case.store.close()
    assert case.store.report.problem is None
    again = SmallRun(tmp_path, capacity=500)
    assert again.resume().opt_steps == 20
    pushed = 60 + 2 * push
    assert again.numbers == list(range(max(0, pushed - 500), pushed))
    assert case.chunks[0] == "0-1"


FILL_TMPFS = """
import errno, os, sys
from pathlib import Path
from saves import SmallRun
from test_full_disk import everything

run_dir = Path(sys.argv[1]) / "run"
run_dir.mkdir()
case = SmallRun(run_dir, capacity=50_000, keep=2)
assert case.save(10, push=5_000)
case.save_best(10, 1.0)
case.push(1_000)
filler = run_dir / "filler"
room = os.statvfs(run_dir)
failures = 0
for free in range(0, room.f_bavail * room.f_bsize, 4096):
    with filler.open("wb") as file:  # leaves so much free
        room = os.statvfs(run_dir)
        file.write(bytes(room.f_bavail * room.f_bsize - free))
    before = everything(case.folder)
    written = case.save(20 + free)
    filler.unlink()
    if written:
        break
    failures += 1
    assert everything(case.folder) == before, free
    assert f"[Errno {errno.ENOSPC}]" in case.store.report.problem
assert failures == case.store.report.failures
assert case.weights("best") == "weights 10"
assert case.save(1_000_000, push=10)
case.store.close()
again = SmallRun(run_dir, capacity=50_000)
again.resume()
assert len(again.numbers) == again.buffer.ring.pushed == 6_010
print(failures)
"""


def run_on_tmpfs(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that finds a disk of 2 MB at `folder`."""
    mount = f'mount -t tmpfs -o size=2m none {folder} && exec "$@"'
    path = os.pathsep.join(
        [str(SUPPORT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, "-c", script, str(folder)],
        capture_output=True, text=True, timeout=100, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Where mounting is allowed: runs a script on a small disk of its own."""
    if shutil.which("unshare") is None or run_on_tmpfs(tmp_path, "pass").returncode != 0:
        pytest.skip("no small disk can be mounted here")
    return lambda script: run_on_tmpfs(tmp_path, script)


def test_a_small_disk_that_is_full_anywhere_in_a_save_leaves_what_was_saved(
    small_disk: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    done = small_disk(FILL_TMPFS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_nothing_is_resumed_from_a_run_that_never_had_room(tmp_path: Path) -> None:
    case = SmallRun(tmp_path)
    with full_disk(0):
        assert not case.save(10, push=5)
    assert resumable(tmp_path) == []
    assert case.save(20)
    case.store.close()
    assert case.chunks == ["0-5"]
