"""States of agents on disk: exact, readable, safe to load; errors name unreadable files."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.core.state import TREE, first_not_finite, load_state, save_state
from border_cli.errors import CheckpointError
from tests.support.malicious_files import Malicious

ARRAYS = [
    *(np.ones((2, 3), kind) for kind in ("?", "i1", "u2", "i8", "f2", "f4", ">f8", "c8", "M8[s]")),
    *(np.array(["", "ä"]), np.array(2.5), np.zeros((0, 3)), np.zeros(2, [("a", "i8")])),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
]


def test_a_state_is_read_as_it_was_written(tmp_path: Path):
    plain = {
        "none": None, "flags": [True, False], "whole": -(2**70), "real": 0.1 + 0.2, "text": "ä\n",
        "empty": {}, "nested": [[1, [2.5]], {"a": {"": []}}], "infinite": -math.inf,
    }  # fmt: skip
    save_state({**plain, "arrays": ARRAYS, "a": {"b": [np.ones(2)]}}, tmp_path / "agent.npz")
    loaded = load_state(tmp_path / "agent.npz")
    for array, original in zip(loaded.pop("arrays"), ARRAYS, strict=True):
        assert (array.dtype, array.shape) == (original.dtype, original.shape)
        assert array.tobytes() == original.tobytes()
    assert loaded.pop("a")["b"][0].tolist() == [1, 1]
    assert repr(loaded) == repr(plain)  # of equal types


def test_other_arrays_and_numbers_are_stored_as_those_of_numpy_and_python(tmp_path: Path):
    save_state({"w": torch.ones(2), "n": np.float32(0.5), "pair": (1, 2)}, tmp_path / "agent.npz")
    loaded = load_state(tmp_path / "agent.npz")
    assert (loaded["w"].dtype, loaded["w"].tolist()) == (np.float32, [1, 1])
    assert repr((loaded["n"], loaded["pair"])) == "(0.5, [1, 2])"


def test_arrays_have_the_names_of_their_places(tmp_path: Path):
    state = {"online": {"layers.0.weight": np.ones(2)}, "optimizer": {"means": [0, np.zeros(1)]}}
    save_state(state, tmp_path / "agent.npz")
    with np.load(tmp_path / "agent.npz") as arrays:
        assert {*arrays} == {TREE, "online/layers.0.weight", "optimizer/means/1"}
        assert arrays["online/layers.0.weight"].tolist() == [1, 1]


def test_arrays_whose_names_would_be_equal_are_kept_apart(tmp_path: Path):
    state = {"a": {"b": np.ones(1)}, "a/b": np.zeros(1), TREE: np.full(1, 2)}
    save_state(state, tmp_path / "agent.npz")
    loaded = load_state(tmp_path / "agent.npz")
    assert [loaded["a"]["b"], loaded["a/b"], loaded[TREE]] == [[1], [0], [2]]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": object()}, "cannot store a object"),
        ({"a": {1, 2}}, "cannot store a set"),
        ({"a": np.array([object()])}, "cannot store a ndarray"),
        ({"a": b"bytes"}, "cannot store a bytes"),
        ({"a": {1: "one"}}, "cannot store a dict: {1: 'one'}"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused(state: Any, message: str, tmp_path: Path):
    with pytest.raises(TypeError, match=message):
        save_state(state, tmp_path / "agent.npz")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"nowhere\.npz cannot be read"):
        load_state(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half of a zip file"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "agent.npz").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"agent\.npz cannot be read"):
        load_state(tmp_path / "agent.npz")


def test_a_file_cut_short_is_named(tmp_path: Path):
    path = tmp_path / "agent.npz"
    save_state({"weights": np.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"agent\.npz cannot be read"):
        load_state(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"a": np.ones(2)},
        {TREE: np.ones(2)},
        {TREE: np.array("{")},
        {TREE: np.array("[1, 2]")},
        {TREE: np.array('{"a": {"__array__": "b"}}')},
    ],
    ids=["no tree", "no text", "no JSON", "a list", "a missing array"],
)
def test_something_else_than_a_state_is_refused(arrays: dict[str, Any], tmp_path: Path):
    np.savez(tmp_path / "agent.npz", **arrays)
    with pytest.raises(CheckpointError, match=r"agent\.npz cannot be read as the state of"):
        load_state(tmp_path / "agent.npz")


@pytest.mark.parametrize("where", ["file", "tree", "array"])
def test_opening_a_file_cannot_run_code(tmp_path: Path, where: str):
    path, ran = tmp_path / "agent.npz", tmp_path / "ran"
    trap = np.array([Malicious(ran)], object)
    if where == "file":
        path.write_bytes(pickle.dumps({"weights": Malicious(ran)}))
    elif where == "tree":
        np.savez(path, **{TREE: trap})
    else:
        np.savez(path, **{TREE: np.array('{"a": {"__array__": "a"}}'), "a": trap})
    with pytest.raises(CheckpointError, match=r"cannot be read .*allow_pickle="):
        load_state(path)
    assert not ran.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No space left"):
        save_state({"weights": np.ones(1000)}, Path("/dev/full"))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_array_that_is_not_finite_is_named(bad: float):
    layers = {"layers.0.weight": np.ones((3, 2), np.float32), "layers.0.bias": np.ones(2)}
    means = [np.zeros(2), np.zeros(0), np.array(3), np.ones(2, bool), np.float32([3e38, -3e38])]
    state = {"steps": 3, "name": "dqn", "online": layers, "optimizer": {"means": means}}
    assert first_not_finite(state) is None
    means[0][1] = bad
    assert first_not_finite(state) == "optimizer/means/0"
    layers["layers.0.bias"][1] = bad
    assert first_not_finite(state) == "online/layers.0.bias"


def test_checkpoints_are_read_and_written_without_torch():
    modules = ("core.state", "run.checkpoint_files", "run.folders", "run.exported")
    imports = ", ".join(f"border_cli.{module}" for module in modules)
    code = f"import sys, {imports}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
