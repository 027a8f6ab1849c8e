"""A file that only grows, on a disk that fills up in the middle of a record."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from border_cli.recorder import append_file
from border_cli.recorder.append_file import AppendFile


@contextmanager
def no_file_longer_than(num_bytes: int) -> Iterator[None]:
    """The kernel stops every write of this process there, in mid-record as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_record_can_be_read_as_soon_as_append_returns(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "new" / "folder" / "rows")
    file.append(b"one\n")
    assert (tmp_path / "new" / "folder" / "rows").read_bytes() == b"one\n"
    file.close()


def test_an_existing_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old\n")
    file = AppendFile(path)
    file.append(b"new\n")
    file.close()
    assert path.read_bytes() == b"old\nnew\n"


def test_a_record_torn_by_a_full_disk_is_completed_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = AppendFile(path)
    file.append(b"first\n")
    with no_file_longer_than(10):
        with pytest.raises(OSError, match="File too large"):
            file.append(b"second\n")
        assert path.read_bytes() == b"first\nseco"
        with pytest.raises(OSError, match="File too large"):
            file.append(b"third\n")
    file.append(b"fourth\n")
    file.close()
    assert path.read_bytes() == b"first\nsecond\nthird\nfourth\n"


def test_what_waits_is_written_by_flush_and_by_close(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = AppendFile(path)
    file.enqueue(b"one\n")
    assert path.read_bytes() == b""
    file.flush()
    assert path.read_bytes() == b"one\n"
    file.enqueue(b"two\n")
    file.close()
    file.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_past_the_bound_the_oldest_waiting_records_go_and_close_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_file, "MAX_WAITING", 3)
    path = tmp_path / "rows"
    file = AppendFile(path)
    with no_file_longer_than(2):
        for record in (b"aaaa\n", b"bbbb\n", b"cccc\n", b"dddd\n", b"eeee\n"):
            with pytest.raises(OSError, match="File too large"):
                file.append(record)
    with pytest.raises(OSError, match="2 rows were lost") as lost:
        file.close()
    assert lost.value.errno == errno.ENOSPC
    # "aa" stood in the file already, so that record is the one to be kept whole.
    assert path.read_bytes() == b"aaaa\ndddd\neeee\n"


def test_closing_on_a_full_disk_raises_once_and_never_hangs() -> None:
    file = AppendFile(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left on device"):
        file.append(b"row\n")
    with pytest.raises(OSError, match="No space left on device"):
        file.close()
    file.close()
