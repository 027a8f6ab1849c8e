"""A tree of numbers, strings, lists and arrays as files: JSON, and arrays beside it.

In the JSON `{"__array__": name}` stands for an array of the `.npz`, and `{"__float__": word}` for
the floats that JSON does not know. Neither can hold code.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.files import require_stored
from border_cli.core.types import State

ARRAY = "__array__"
FLOAT = "__float__"

Arrays = dict[str, NDArray[Any]]


def without_arrays(tree: Any, arrays: Arrays) -> Any:
    """The tree as JSON knows it; its arrays are added to `arrays` under names of their own.

    Raises `TypeError` for what a checkpoint cannot hold.
    """
    if isinstance(tree, np.ndarray):
        if tree.dtype.hasobject:
            raise TypeError("a checkpoint cannot store arrays of Python objects")
        name = f"array_{len(arrays)}"
        arrays[name] = tree
        return {ARRAY: name}
    if isinstance(tree, np.generic):
        return without_arrays(tree.item(), arrays)
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {FLOAT: repr(tree)}
    if tree is None or isinstance(tree, bool | int | str):
        return tree
    if isinstance(tree, Mapping):
        return {_key(key): without_arrays(each, arrays) for key, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [without_arrays(each, arrays) for each in tree]
    raise TypeError(f"a checkpoint cannot store a {type(tree).__name__}: {tree!r:.80}")


def _key(key: Any) -> str:
    if not isinstance(key, str) or key in (ARRAY, FLOAT):
        raise TypeError(f"a checkpoint cannot store the key {key!r}")
    return key


def with_arrays(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `without_arrays` was given; raises `KeyError` or `ValueError` where it is not whole."""
    if isinstance(tree, list):
        return [with_arrays(each, arrays) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if ARRAY in tree:
        return arrays[tree[ARRAY]]
    if FLOAT in tree:
        return float(tree[FLOAT])
    return {key: with_arrays(each, arrays) for key, each in tree.items()}


def packed(arrays: Arrays) -> bytes:
    """The arrays as an `.npz`, in memory: a full disk then fails in one plain write."""
    buffer, content = io.BytesIO(), dict[str, Any](arrays)
    np.savez(buffer, **content)
    return buffer.getvalue()


def read_arrays(path: Path) -> Arrays:
    """The arrays of an `.npz`; raises `CheckpointError` for anything else, pickles included."""
    try:
        require_stored(path)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file may raise anything
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def read_tree(path: Path, tree: Any, arrays: Arrays) -> State:
    """The tree of a document that stands at `path`; raises `CheckpointError`."""
    try:
        whole = with_arrays(tree, arrays)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error!r}") from error
    if not isinstance(whole, dict):
        raise CheckpointError(f"{path} does not contain the state of a run")
    return whole
