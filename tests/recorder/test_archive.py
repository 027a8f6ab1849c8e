"""Rows that a resumed run drops are kept; rows that it shall keep are neither lost nor doubled."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from commands import full_disk

from border_cli.recorder.append_file import AppendFile
from border_cli.recorder.archive import Archive


def test_what_lies_beyond_the_position_is_moved_behind_what_was_moved_before(
    tmp_path: Path,
) -> None:
    path, into = tmp_path / "rows", tmp_path / "dropped"
    path.write_bytes(b"a\nb\nc\n")
    into.write_bytes(b"old\n")
    assert Archive().cut(path, {"size": 2}, into) == b""
    assert path.read_bytes() == b"a\n"
    assert into.read_bytes() == b"old\nb\nc\n"


def test_where_nothing_lies_beyond_nothing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"a\n")
    assert Archive().cut(path, {"size": 2}, tmp_path / "dropped") == b""
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize(
    ("on_disk", "kept", "dropped", "missing"),
    [
        (b"a\n", b"a\n", None, b"w1\nw2\n"),  # killed before there was room
        (b"a\nw1\nw", b"a\n", None, b"w1\nw2\n"),  # killed while there was some
        (b"a\nw1\nw2\n", b"a\nw1\nw2\n", None, b""),
        (b"a\nw1\nw2\nb\n", b"a\nw1\nw2\n", b"b\n", b""),
        (b"a\nw1\nb\n", b"a\n", b"w1\nb\n", b"w1\nw2\n"),  # w2 was too old to wait any longer
    ],
)
def test_rows_that_waited_for_room_at_the_position_are_in_it(
    tmp_path: Path, on_disk: bytes, kept: bytes, dropped: bytes | None, missing: bytes
) -> None:
    path, into = tmp_path / "rows", tmp_path / "dropped"
    path.write_bytes(on_disk)
    position = {"size": 2, "waiting": np.frombuffer(b"w1\nw2\n", dtype=np.uint8)}
    assert Archive().cut(path, position, into) == missing
    assert path.read_bytes() == kept
    assert (into.read_bytes() if into.exists() else None) == dropped


def test_a_file_that_is_too_short_or_gone_is_named_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, into = tmp_path / "rows", tmp_path / "dropped"
    path.write_bytes(b"a\n")
    with caplog.at_level(logging.WARNING):
        Archive().cut(path, {"size": 5}, into)
        Archive().cut(tmp_path / "gone", {"size": 5}, into)
    assert path.read_bytes() == b"a\n"
    assert not into.exists()
    assert f"{path} has 2 bytes, 3 fewer than at the checkpoint" in caplog.text
    assert f"{tmp_path / 'gone'} is missing" in caplog.text


def test_dropped_rows_wait_in_memory_where_the_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, into = tmp_path / "rows", tmp_path / "dropped"
    path.write_bytes(b"a\nbbbb\ncccc\n")
    archive = Archive()
    with full_disk(3), caplog.at_level(logging.WARNING):
        archive.cut(path, {"size": 2}, into)
        with pytest.raises(OSError, match="File too large"):
            archive.flush()
    assert f"could not write superseded rows to {into}" in caplog.text
    assert path.read_bytes() == b"a\n"
    assert into.read_bytes() == b"bbb"
    archive.flush()
    assert into.read_bytes() == b"bbbb\ncccc\n"
    archive.close()
    archive.close()
    assert into.read_bytes() == b"bbbb\ncccc\n"


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


def test_neither_a_cut_nor_what_it_keeps_goes_through_a_link(tmp_path: Path) -> None:
    path, target = tmp_path / "rows", tmp_path / "target"
    target.write_bytes(b"a\nb\n")
    path.symlink_to(target)
    with pytest.raises(OSError, match="is a link, and links are not followed"):
        Archive().cut(path, {"size": 2}, tmp_path / "dropped")
    path.unlink()
    path.write_bytes(b"a\nb\n")
    (tmp_path / "dropped").symlink_to(target)
    with pytest.raises(OSError, match="is a link, and links are not followed"):
        Archive().cut(path, {"size": 2}, tmp_path / "dropped")
    assert (path.read_bytes(), target.read_bytes()) == (b"a\nb\n", b"a\nb\n")
