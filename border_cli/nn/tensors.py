"""Conversions between numpy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from border_cli.core.types import Array
from border_cli.nn.batch import TensorObs, wrap_obs


def to_arrays(state: Any) -> Any:
    """Replaces the tensors in nested dicts and lists by arrays, which share memory on the CPU."""
    if isinstance(state, Tensor):
        return state.detach().cpu().numpy()
    if isinstance(state, Mapping):
        return {name: to_arrays(part) for name, part in state.items()}
    return [to_arrays(part) for part in state] if isinstance(state, list | tuple) else state


def to_tensors(state: Any) -> Any:
    """Replaces the arrays in nested dicts and lists by tensors that are copies, on the CPU."""
    return tree_map_only(np.ndarray, torch.tensor, state)


def tensor_obs(obs: Array) -> TensorObs:
    """Returns tensors that share memory with an observation."""
    return wrap_obs(obs, torch.from_numpy)
