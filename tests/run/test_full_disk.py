"""A disk that fills up during a save: the failure is reported, and earlier saves stay intact."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.run.finding import find_resumable
from tests.support.commands import full_disk
from tests.support.small_run import SmallRun


def everything(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# Number of rows pushed, and the limit on the size of a file in bytes. A row takes 48 bytes in a
# chunk, the state about 1 KB, and the manifest, which lists 20 chunks, about 3 KB.
@pytest.mark.parametrize(
    ("place", "push", "limit"),
    [
        ("chunk", 400, 10_000),
        ("header of a chunk", 400, 100),
        ("agent", 0, 0),
        ("manifest", 1, 2000),
    ],
)
def test_a_limit_in_the_middle_of_any_file_leaves_what_was_saved(
    tmp_path: Path, place: str, push: int, limit: int
) -> None:
    del place
    case = SmallRun(tmp_path, capacity=500)
    for _ in range(20):
        case.save(10, push=1)
    before = everything(case.folder)
    with full_disk(limit):
        assert not case.save(20, push=push)
        assert not case.save(20, push=push)
    assert everything(case.folder) == before
    report = case.store.report
    assert (report.failures, report.written) == (2, 20)
    assert "File too large" in str(report.problem)
    assert case.save(20, push=10)  # space is available again
    case.store.close()
    assert case.store.report.problem is None
    second = SmallRun(tmp_path, capacity=500)
    assert second.resume().opt_steps == 20
    pushed = 30 + 2 * push
    assert second.numbers == list(range(max(0, pushed - 500), pushed))


def test_nothing_is_resumed_from_a_run_that_never_had_room(tmp_path: Path) -> None:
    case = SmallRun(tmp_path)
    with full_disk(0):
        assert not case.save(10, push=5)
    assert find_resumable(tmp_path) == []
    assert case.save(20)
    case.store.close()
    assert case.chunks == ["0-5"]
