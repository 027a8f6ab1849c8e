"""States as trees of dicts, lists, numbers, strings and arrays, and the file `agent.npz`.

Arrays are named by their path in the tree: `online/mlp.layers.0.weight`. JSON contains the rest of
the tree, with `{"__array__": name}` in place of an array. Neither can contain code.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import State
from border_cli.errors import CheckpointError

ARRAY = "__array__"
TREE = "state.json"  # name of the JSON in `agent.npz`


def dump_state(tree: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """Returns the tree as JSON, and adds its arrays to `arrays`.

    Raises `TypeError` for values that a checkpoint cannot store.
    """
    return json.dumps(_extract_arrays(tree, arrays, ""))


def _extract_arrays(tree: Any, arrays: dict[str, NDArray[Any]], prefix: str) -> Any:
    if isinstance(tree, Mapping) and all(isinstance(key, str) for key in tree):
        return {key: _extract_arrays(part, arrays, f"{prefix}{key}/") for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [_extract_arrays(part, arrays, f"{prefix}{i}/") for i, part in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, int | float | str):
        return tree
    # Tensors on the CPU are arrays, too.
    if hasattr(tree, "__array__") and not (array := np.asarray(tree)).dtype.hasobject:
        name = prefix[:-1]
        if name in arrays:  # "a/b" may be a key
            name += f"#{len(arrays)}"
        arrays[name] = array
        return {ARRAY: name}
    raise TypeError(f"a checkpoint cannot store a {type(tree).__name__}: {tree!r:.80}")


def restore_array(arrays: Mapping[str, NDArray[Any]], document: dict[str, Any]) -> Any:
    """Returns the array that an object in the JSON of `dump_state` stands for, or the object."""
    return arrays[document[ARRAY]] if ARRAY in document else document


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes a `.npz` file, without syncing it; raises OSError if the disk is full."""
    buffer = io.BytesIO()  # in memory, so that a full disk causes a single failed write
    np.savez(buffer, **arrays)
    path.write_bytes(buffer.getbuffer())


def save_state(state: Mapping[str, Any], path: Path) -> None:
    """Writes the state of an agent to `agent.npz`, like `write_arrays`."""
    arrays: dict[str, Any] = {TREE: ""}  # reserves the name
    arrays[TREE] = dump_state(state, arrays)
    write_arrays(path, arrays)


def load_state(path: Path) -> State:
    """Reads the state of an agent. Never executes code from the file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {**json.loads(arrays[TREE].item(), object_hook=partial(restore_array, arrays))}
    except Exception as error:  # a corrupt file may raise anything
        raise CheckpointError(f"{path} cannot be read as the state of an agent: {error}") from error


def first_not_finite(state: Mapping[str, Any]) -> str | None:
    """Returns the name of the first array that contains NaN or infinity, or None."""
    arrays: dict[str, NDArray[Any]] = {}
    _extract_arrays(state, arrays, "")
    return next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
