"""Damaged or malicious checkpoints raise an error that names the file, and never run code."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.core.state import TREE, dump_state, load_state, restore_array
from border_cli.errors import CheckpointError
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_resumable
from border_cli.run.manifest import verify
from tests.support.malicious_files import Malicious
from tests.support.small_run import SmallRun

FILES = ["agent.npz", "state.json", "arrays.npz", "manifest.json"]
NAME = "0000000020"


def path_of(run_dir: Path, name: str) -> Path:
    return run_dir / "checkpoints" / NAME / name


def test_a_whole_one_is_read(run_dir: Path) -> None:
    newest, oldest = (read_checkpoint(folder) for folder in find_resumable(run_dir))
    assert (newest.opt_steps, oldest.opt_steps) == (20, 10)
    assert newest.counters["env_steps"] == 7
    assert newest.run["opt_steps"] == 20
    assert (newest.folder / "agent.npz").read_text() == "weights 20"
    assert newest.has_rows
    case = SmallRun(run_dir, prioritized=True)
    case.resume()
    assert case.numbers == list(range(50))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[:-1],
    "flipped in the middle": lambda content: flipped(content, 4 * len(content)),
    "longer": lambda content: content + b"x",
}


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_named(run_dir: Path, name: str, how: str) -> None:
    path = path_of(run_dir, name)
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    for read in (read_checkpoint, verify):
        with pytest.raises(CheckpointError, match=rf"{NAME}/{name}|{NAME} has checkpoint format"):
            read(path.parent)
    assert [checkpoint.name for checkpoint in find_resumable(run_dir)] == [NAME, "0000000010"]
    assert read_checkpoint(find_resumable(run_dir)[1]).opt_steps == 10


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(run_dir: Path, name: str) -> None:
    path_of(run_dir, name).unlink()
    with pytest.raises(CheckpointError, match=rf"{NAME}/{name} (is missing|cannot be read)"):
        read_checkpoint(path_of(run_dir, name).parent)


def test_a_flipped_bit_anywhere_in_a_manifest_is_noticed(run_dir: Path) -> None:
    path = path_of(run_dir, "manifest.json")
    content = path.read_bytes()
    for byte in range(0, len(content), 3):
        path.write_bytes(flipped(content, 8 * byte + byte % 8))
        with pytest.raises(CheckpointError, match=NAME):
            read_checkpoint(path.parent)


def sign(folder: Path, **changes: Any) -> None:
    """Recomputes the checksums of a folder, as an attacker would."""
    path = folder / "manifest.json"
    content = {**json.loads(path.read_text()), **changes}
    del content["checksum"]
    for name in content["sha256"]:
        if (folder / name).is_file():
            content["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    content["checksum"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps(content))


def test_a_pickle_in_a_signed_agent_is_refused_and_does_not_run(run_dir: Path) -> None:
    mark = run_dir / "ran"
    path = path_of(run_dir, "agent.npz")
    np.savez(path, **{TREE: np.array([Malicious(mark)], object)})
    sign(path.parent)
    saved = read_checkpoint(path.parent)
    with pytest.raises(CheckpointError, match=r"agent\.npz cannot be read as the state of"):
        load_state(saved.folder / "agent.npz")
    assert not mark.exists()


def test_a_pickle_in_signed_arrays_is_refused_and_does_not_run(run_dir: Path) -> None:
    mark = run_dir / "ran"
    path = path_of(run_dir, "arrays.npz")
    with np.load(path) as arrays:
        np.savez(path, **dict.fromkeys(arrays, np.array([Malicious(mark)], object)))
    sign(path.parent)
    with pytest.raises(CheckpointError, match="allow_pickle"):
        read_checkpoint(path.parent)
    assert not mark.exists()


@pytest.mark.parametrize("found", ["4", "null", '"4"', "[]"])
def test_a_foreign_format_is_refused(run_dir: Path, found: str) -> None:
    path = path_of(run_dir, "manifest.json")
    path.write_text(f'{{"format": {found}, "sha256": {{}}}}')
    match = "has checkpoint format .*, written by another version of border_cli; this one reads 5"
    with pytest.raises(CheckpointError, match=match):
        verify(path.parent)


def through_files(tree: Any, folder: Path) -> Any:
    arrays: dict[str, Any] = {}
    text = dump_state(tree, arrays)
    np.savez(folder / "arrays.npz", **arrays)
    with np.load(folder / "arrays.npz", allow_pickle=False) as saved_arrays:
        return json.loads(text, object_hook=partial(restore_array, saved_arrays))


def test_numbers_strings_lists_and_dicts_come_back_exactly(tmp_path: Path) -> None:
    generator = np.random.default_rng(3).bit_generator.state
    tree = {
        "whole": -(2**127), "real": 0.1 + 0.2, "tiny": 5e-324, "none": None, "flag": True,
        "text": "ä\ud7ff\n", "": [], "nested": [[1, [2.5]], {"a": {}}], "generator": generator,
        "negative zero": -0.0, "infinite": [math.inf, -math.inf],
    }  # fmt: skip
    read = through_files(tree, tmp_path)
    assert read == tree
    assert math.copysign(1, read["negative zero"]) == -1
    assert read["flag"] is True


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(7, np.uint8),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.array([(1, 2.5)], [("a", "i8"), ("b.c", "f4", ())]),
        np.array([np.nan, -0.0, np.inf]),
    ],
)
def test_arrays_come_back_to_the_bit(array: np.ndarray, tmp_path: Path) -> None:
    read = through_files({"x": [{"y": array}], "again": array}, tmp_path)
    for restored in (read["x"][0]["y"], read["again"]):
        assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
        assert restored.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, "cannot store a object"),
        ({"a": {1, 2}}, "cannot store a set"),
        ({"a": np.array([object()])}, "cannot store a ndarray"),
        ({"a": b"bytes"}, "cannot store a bytes"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dump_state(tree, {})
