"""DeepMind's rlax: the formulas of reinforcement learning by others, in double precision."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class Lazy:
    """A module, imported where it is first used: not by a process that runs none of its tests."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports itself
            return getattr(importlib.import_module(self._name), name)


jax, rlax = Lazy("jax"), Lazy("rlax")


def by_row(function: Callable[..., Any], *tensors: torch.Tensor, **same: Any) -> NDArray[Any]:
    """The function of one row of each tensor, for all rows; `same` is so for all. [B, …]"""
    with jax.enable_x64(True):
        rows = zip(*(each.detach().numpy() for each in tensors), strict=True)
        return np.array([function(*map(jax.numpy.asarray, row), **same) for row in rows])
