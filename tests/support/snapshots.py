"""Arrays of a torch module, as actors receive them in a snapshot."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import nn

from border_cli.nn.tensors import to_arrays


def snapshot_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Returns read-only copies of a module's arrays, by their names in its state dict."""
    arrays = {name: array.copy("K") for name, array in to_arrays(module.state_dict()).items()}
    for array in arrays.values():
        array.setflags(write=False)
    return arrays
