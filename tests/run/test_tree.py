"""A tree of numbers and arrays comes back as it was, and holds nothing that could run."""

from __future__ import annotations

import copy
import json
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.core.errors import CheckpointError
from border_cli.run.checkpoint_files import (
    Arrays,
    join_arrays,
    npz_bytes,
    read_arrays,
    read_tree,
    split_arrays,
)


def through_files(tree: Any, folder: Path) -> Any:
    arrays: Arrays = {}
    text = json.dumps(split_arrays(tree, arrays), allow_nan=False)
    path = folder / "arrays.npz"
    path.write_bytes(npz_bytes(arrays))
    return read_tree(path, json.loads(text), read_arrays(path))


def test_numbers_strings_lists_and_dicts_come_back_exactly(tmp_path: Path) -> None:
    generator = np.random.default_rng(3).bit_generator.state
    tree = {
        "whole": -(2**127), "real": 0.1 + 0.2, "tiny": 5e-324, "none": None, "flag": True,
        "text": "ä\ud7ff\n", "": [], "nested": [[1, [2.5]], {"a": {}}], "generator": generator,
        "negative zero": -0.0,
    }  # fmt: skip
    read = through_files(tree, tmp_path)
    assert read == tree
    assert math.copysign(1, read["negative zero"]) == -1
    assert read["flag"] is True


def test_floats_that_json_does_not_know_come_back(tmp_path: Path) -> None:
    read = through_files({"a": [math.nan, math.inf, -math.inf]}, tmp_path)["a"]
    assert math.isnan(read[0])
    assert read[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(7, np.uint8),
        np.zeros((0, 4), np.int64),
        np.array([True, False]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.array([(1, 2.5)], [("a", "i8"), ("b.c", "f4", ())]),
        np.array([np.nan, -0.0, np.inf]),
        np.array(["word"]),
    ],
)
def test_arrays_come_back_to_the_bit(array: np.ndarray, tmp_path: Path) -> None:
    read = through_files({"x": [{"y": array}], "again": array}, tmp_path)
    for each in (read["x"][0]["y"], read["again"]):
        assert (each.dtype, each.shape) == (array.dtype, array.shape)
        assert each.tobytes() == array.tobytes()


def test_numbers_of_numpy_become_plain_ones_and_tuples_lists(tmp_path: Path) -> None:
    tree = {"a": np.float32(0.1), "b": np.int64(3), "c": (1, 2), "d": np.bool_(True)}
    read = through_files(tree, tmp_path)
    assert read == {"a": float(np.float32(0.1)), "b": 3, "c": [1, 2], "d": True}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, "cannot store a object"),
        ({"a": {1, 2}}, "cannot store a set"),
        ({1: 2}, "cannot store the key 1"),
        ({"__array__": 2}, "cannot store the key '__array__'"),
        ({"__float__": 2}, "cannot store the key '__float__'"),
        ({"a": np.array([object()])}, "cannot store arrays of Python objects"),
        ({"a": b"bytes"}, "cannot store a bytes"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        split_arrays(tree, {})


@pytest.mark.parametrize(
    "tree", [{"a": {"__array__": "gone"}}, {"a": {"__float__": "word"}}, {"a": {"__array__": []}}]
)
def test_a_tree_that_is_not_whole_is_refused(tree: Any) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json cannot be read"):
        read_tree(Path("state.json"), tree, {})


def test_a_document_without_a_tree_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"state\.json does not contain the state of a run"):
        read_tree(Path("state.json"), None, {})
    assert join_arrays(None, {}) is None


class Malicious:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_arrays_with_a_pickle_inside_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    path, mark = tmp_path / "arrays.npz", tmp_path / "ran"
    np.savez(path, array_0=np.array([Malicious(mark)], object))
    with pytest.raises(CheckpointError, match=r"arrays\.npz cannot be read: .*allow_pickle"):
        read_arrays(path)
    path.write_bytes(pickle.dumps(Malicious(mark)))
    with pytest.raises(CheckpointError, match=r"arrays\.npz cannot be read"):
        read_arrays(path)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"word"])
def test_what_is_no_npz_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"arrays\.npz cannot be read"):
        read_arrays(path)


def test_one_array_alone_is_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(CheckpointError, match=r"arrays\.npz cannot be read"):
        read_arrays(path)


def test_a_small_file_that_inflates_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez_compressed(path, array_0=np.zeros(2**20))
    assert path.stat().st_size < 2**14
    with pytest.raises(
        CheckpointError, match=r"arrays\.npz cannot .* damaged or not from border_cli"
    ):
        read_arrays(path)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, array_0=np.zeros(2**10))
    with zipfile.ZipFile(path, "a") as archive:
        (member,) = archive.infolist()
        for n in range(1, 100):
            again = copy.copy(member)
            again.filename = f"array_{n}.npy"
            archive.filelist.append(again)
        archive.comment = b"has the directory written anew"
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 100
    with pytest.raises(CheckpointError, match="its contents are larger than the file"):
        read_arrays(path)
