"""States of modules and optimizers with numpy arrays in place of tensors, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


def copy_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Returns read-only copies of a module's arrays, by their names in its state dict."""
    arrays = {}
    for name, tensor in module.state_dict().items():
        array = tensor.detach().to("cpu", copy=True).numpy()
        array.setflags(write=False)
        arrays[name] = array
    return arrays


def to_arrays(state: Any) -> Any:
    """Replaces the tensors in nested dicts and lists by arrays, which share memory on the CPU."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().cpu().numpy(), state)


def to_tensors(state: Any) -> Any:
    """Replaces the arrays in nested dicts and lists by tensors that are copies, on the CPU."""
    return tree_map_only(np.ndarray, torch.tensor, state)
