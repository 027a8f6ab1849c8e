"""Round trips of states through JSON and npz, and their exact comparison."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np


def reread(state: Any) -> Any:
    """Returns the state after writing and reading it; raises if it cannot be written."""
    arrays: dict[str, Any] = {}
    text = json.dumps(_without_arrays(state, arrays))
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return _with_arrays(json.loads(text), loaded)


def _without_arrays(state: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(state, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = state
        return {"__array__": name}
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state)
        return {key: _without_arrays(value, arrays) for key, value in state.items()}
    if isinstance(state, list):
        return [_without_arrays(value, arrays) for value in state]
    assert state is None or type(state) in (bool, int, float, str), type(state)
    return state


def _with_arrays(state: Any, arrays: Any) -> Any:
    if isinstance(state, dict):
        if "__array__" in state:
            return arrays[state["__array__"]]
        return {key: _with_arrays(value, arrays) for key, value in state.items()}
    if isinstance(state, list):
        return [_with_arrays(value, arrays) for value in state]
    return state


def same(one: Any, other: Any) -> bool:
    """Returns whether two trees have equal values and types, arrays bitwise; lists equal tuples."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and (one.dtype, one.shape) == (other.dtype, other.shape)
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and list(one) == list(other)
            and all(same(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(same, one, other))
        )
    return type(one) is type(other) and bool(one == other)
