"""A file that only grows, on a disk that fills up in the middle of a record."""

from __future__ import annotations

import errno
import logging
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commands import full_disk

from border_cli.core.errors import RunDeleted
from border_cli.recorder import append_file
from border_cli.recorder.append_file import AppendFile, cut


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


def test_closing_on_a_full_disk_raises_once_and_never_hangs(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "rows")
    with no_file_longer_than(0):
        with pytest.raises(OSError, match="File too large"):
            file.append(b"row\n")
        with pytest.raises(OSError, match="File too large"):
            file.close()
        file.close()


def test_a_deleted_file_is_named_and_none_in_its_place_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "rows"
    file = AppendFile(path)
    file.append(b"one\n")
    shutil.rmtree(path.parent)
    with pytest.raises(RunDeleted, match=f"^{path.parent} was deleted or moved"):
        file.append(b"two\n")
    path.parent.mkdir()
    path.write_bytes(b"of another run\n")
    with pytest.raises(RunDeleted, match=f"^{path} was deleted or moved"):
        file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"of another run\n"


def test_what_lies_beyond_the_position_is_given_away_before_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"a\nb\nc\n")

    def keep(rows: bytes) -> None:
        assert (rows, path.read_bytes()) == (b"b\nc\n", b"a\nb\nc\n")

    assert cut(path, {"size": 2}, keep) == b""
    assert path.read_bytes() == b"a\n"
    kept: list[bytes] = []
    assert cut(path, {"size": 2}, kept.append) == b""
    assert kept == []


@pytest.mark.parametrize(
    ("on_disk", "stays", "dropped", "missing"),
    [
        (b"a\n", b"a\n", [], b"w1\nw2\n"),  # killed before there was room
        (b"a\nw1\nw", b"a\n", [], b"w1\nw2\n"),  # killed while there was some
        (b"a\nw1\nw2\n", b"a\nw1\nw2\n", [], b""),
        (b"a\nw1\nw2\nb\n", b"a\nw1\nw2\n", [b"b\n"], b""),
        (b"a\nw1\nb\n", b"a\n", [b"w1\nb\n"], b"w1\nw2\n"),  # w2 was too old to wait on
    ],
)
def test_rows_that_waited_for_room_at_the_position_are_in_it(
    tmp_path: Path, on_disk: bytes, stays: bytes, dropped: list[bytes], missing: bytes
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(on_disk)
    position = {"size": 2, "waiting": np.frombuffer(b"w1\nw2\n", dtype=np.uint8)}
    kept: list[bytes] = []
    assert cut(path, position, kept.append) == missing
    assert path.read_bytes() == stays
    assert kept == dropped


def test_a_file_that_is_too_short_or_gone_is_named_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"a\n")
    with caplog.at_level(logging.WARNING):
        cut(path, {"size": 5})
        cut(tmp_path / "gone", {"size": 5})
    assert path.read_bytes() == b"a\n"
    assert f"{path} has 2 bytes, 3 fewer than at the checkpoint" in caplog.text
    assert f"{tmp_path / 'gone'} is missing" in caplog.text


def test_a_position_counts_whole_records_only(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "rows")
    file.append(b"first\n")
    assert file.position() == {"size": 6}
    with full_disk(10):
        for record in (b"second\n", b"third\n"):
            with pytest.raises(OSError, match="File too large"):
                file.append(record)
    position = file.position()
    assert position["size"] == 6  # "seco" stands in the file, and is no record yet
    assert position["waiting"].tobytes() == b"second\nthird\n"
    file.flush()
    assert file.position() == {"size": 19}
    file.close()
