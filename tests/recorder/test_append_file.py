"""Append-only files: a full disk, deletion during a run, and cutting back to a checkpoint."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from border_cli.errors import RunDeleted
from border_cli.system.files import AppendFile, truncate
from tests.support.commands import full_disk


def test_a_record_that_does_not_fit_is_left_out_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = AppendFile(path)
    file.append(b"first\n")
    with full_disk(10):
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                file.append(b"second\n")
        assert path.read_bytes() == b"first\n"
        assert file.size == 6
        file.append(b"3\n")
    file.append(b"fourth\n")
    file.close()
    file.close()
    assert path.read_bytes() == b"first\n3\nfourth\n"


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


def test_a_file_that_is_too_short_or_gone_is_named_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"a\n")
    with caplog.at_level(logging.WARNING):
        truncate(path, 5)
        truncate(tmp_path / "gone", 5)
    assert path.read_bytes() == b"a\n"
    assert f"{path} lacks 3 bytes that it had at the checkpoint" in caplog.text
    assert f"{tmp_path / 'gone'} lacks 5 bytes" in caplog.text
