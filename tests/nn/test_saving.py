"""States of modules as arrays, and states of arrays as tensors."""

from __future__ import annotations

import numpy as np
import torch

from border_cli.nn.tensors import to_arrays, to_tensors


def test_a_state_of_tensors_is_one_of_arrays_and_back_exactly():
    state = {"list": [torch.randn(2, 3), None], "dict": {"count": torch.tensor(3)}, "name": "adam"}
    arrays = to_arrays(state)
    assert isinstance(arrays["dict"]["count"], np.ndarray)
    back = to_tensors(arrays)
    assert torch.equal(back["list"][0], state["list"][0])  # type: ignore[index]
    assert torch.equal(back["dict"]["count"], torch.tensor(3))
    assert (back["list"][1], back["name"]) == (None, "adam")


def test_tensors_of_arrays_are_copies_even_of_arrays_that_cannot_be_written():
    array = np.zeros(2)
    array.setflags(write=False)
    tensor = to_tensors({"a": array})["a"]
    tensor += 1
    assert array.tolist() == [0, 0]
