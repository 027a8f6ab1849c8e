"""Agent states on disk, and copies of them in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten_with_path, tree_map_only

from border_cli.errors import CheckpointError


def copy_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Returns read-only copies of a module's arrays, by their names in its state dict."""
    arrays = {}
    for name, tensor in module.state_dict().items():
        array = tensor.detach().to("cpu", copy=True).numpy()
        array.setflags(write=False)
        arrays[name] = array
    return arrays


def copy_state(state: Any) -> Any:
    """Copies nested dicts, lists, numbers and strings, with tensors copied to the CPU."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), state)


def first_not_finite(state: Any) -> str | None:
    """Returns the path of the first tensor or number that contains NaN or infinity, or None."""
    for path, leaf in tree_flatten_with_path(state)[0]:
        numbers = isinstance(leaf, Tensor | float)
        if numbers and not torch.isfinite(torch.as_tensor(leaf)).all():
            return ".".join(str(getattr(key, "key", getattr(key, "idx", ""))) for key in path)
    return None


def save_state(state: Mapping[str, Any], path: Path) -> None:
    """Writes a state to a file, without syncing it; raises OSError if the disk is full."""
    # Through memory, because torch reports a full disk as a RuntimeError.
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    path.write_bytes(buffer.getbuffer())


def load_state(path: Path) -> dict[str, Any]:
    """Reads a state, with tensors on the CPU. Never executes code from the file."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a corrupt file may raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{path} cannot be read as the state of an agent: {reason}"
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{path} contains a {type(state).__name__}, not the state of an agent"
        )
    return state
