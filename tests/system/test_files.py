"""Reading and atomic writing of files, and the conversion of numbers to JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from border_cli.system.files import (
    checksum,
    read_bytes,
    read_bytes_or_empty,
    replace_non_finite,
    write_json,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "a long first text")
    write_text(path, "short")
    assert path.read_text() == "short"
    assert names(tmp_path) == ["run.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        write_text(path, "x" * 100_000 + "\ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["run.json"]


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_what_never_ends_is_neither_waited_for_nor_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 20 * 2**30)  # takes no space on the disk
    with pytest.raises(OSError, match="not a regular file of at most 67,108,864 bytes"):
        read_bytes(path)
    assert read_bytes_or_empty(path) == b""


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert names(tmp_path) == ["run.json"]


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        write_text(tmp_path / "nowhere" / "run.json", "x")


def test_numbers_that_json_does_not_know_become_null_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "score.json"
    write_json(path, {"a": [1.5, math.nan], "b": {"c": math.inf}, "d": (-math.inf, None), 3: True})
    assert json.loads(path.read_text()) == {
        "a": [1.5, None], "b": {"c": None}, "d": [None, None], "3": True,
    }  # fmt: skip


def test_numbers_of_numpy_are_numbers() -> None:
    row = replace_non_finite(
        {"a": np.float32(0.5), "b": np.int64(3), "c": np.float64("nan"), "d": np.uint8(7)}
    )
    assert row == {"a": 0.5, "b": 3, "c": None, "d": 7}
    assert [type(value) for value in row.values()] == [float, int, type(None), int]


def test_the_checksum_is_sha_256(tmp_path: Path) -> None:
    path = tmp_path / "agent.pt"
    path.write_bytes(b"weights")
    assert checksum(path) == hashlib.sha256(b"weights").hexdigest()
