"""States on disk: exact, safe to load, and with errors that name unreadable files."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from border_cli.errors import CheckpointError
from border_cli.nn.saving import copy_state, first_not_finite, load_state, save_state


class Trap:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_a_state_is_read_as_it_was_written(tmp_path: Path):
    state = {"steps": 3, "name": "dqn", "weights": {"a": torch.randn(4, 3)}, "means": [1.5, None]}
    save_state(state, tmp_path / "agent.pt")
    loaded = load_state(tmp_path / "agent.pt")
    assert torch.equal(loaded["weights"].pop("a"), state["weights"].pop("a"))
    assert loaded == state


def test_a_copied_state_is_not_changed_with_the_original():
    weight = torch.zeros(2)
    copied = copy_state({"list": [weight], "dict": {"w": weight}, "n": 1})
    weight += 1
    assert copied["list"][0].tolist() == copied["dict"]["w"].tolist() == [0, 0]
    assert copied["n"] == 1


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"nowhere\.pt cannot be read"):
        load_state(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half of a zip file"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "agent.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"agent\.pt cannot be read"):
        load_state(tmp_path / "agent.pt")


def test_a_file_cut_short_is_named(tmp_path: Path):
    path = tmp_path / "agent.pt"
    save_state({"weights": torch.randn(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"agent\.pt cannot be read"):
        load_state(path)


def test_something_else_than_a_state_is_refused(tmp_path: Path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match=r"list\.pt contains a list"):
        load_state(tmp_path / "list.pt")


@pytest.mark.parametrize("plain", [True, False])
def test_opening_a_file_cannot_run_code(tmp_path: Path, plain: bool):
    path, sprung = tmp_path / "agent.pt", tmp_path / "sprung"
    if plain:
        path.write_bytes(pickle.dumps({"weights": Trap(sprung)}))
    else:
        torch.save({"weights": Trap(sprung)}, path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_state(path)
    assert not sprung.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No space left"):
        save_state({"weights": torch.randn(1000)}, Path("/dev/full"))


def test_the_first_value_that_is_not_finite_is_named_by_its_path():
    def state() -> dict[str, Any]:
        layers = {"layers.0.weight": torch.ones(3, 2), "layers.0.bias": torch.ones(2)}
        means = [torch.zeros(2), torch.zeros(0), torch.tensor(3), torch.ones(2, dtype=torch.bool)]
        numbers = {"steps": 3, "alpha": 0.5, "name": "dqn", "none": None, "pair": (1.0, 2.0)}
        return {"online": layers, "optimizer": {"means": means}, **numbers}

    assert first_not_finite(state()) is None
    for bad in (math.nan, math.inf, -math.inf):
        broken = state()
        broken["pair"] = (1.0, bad)
        assert first_not_finite(broken) == "pair.1"
        broken["alpha"] = bad
        assert first_not_finite(broken) == "alpha"
        broken["optimizer"]["means"][0][1] = bad
        assert first_not_finite(broken) == "optimizer.means.0"
        broken["online"]["layers.0.bias"][1] = bad
        assert first_not_finite(broken) == "online.layers.0.bias"
        assert first_not_finite({"huge": torch.tensor([3e38, -3e38])}) is None
