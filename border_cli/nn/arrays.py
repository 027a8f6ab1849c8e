"""Functions of numpy arrays or torch tensors, so that losses are written once for both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyTensor: TypeAlias = Any  # a numpy array, or a torch tensor on any device


def library_of(values: AnyTensor) -> Any:
    """Returns the module to which the values belong: numpy or torch."""
    if isinstance(values, np.ndarray):
        return np
    import torch  # imported late: numpy agents run without torch

    return torch


def constant(array: NDArray[Any], *, like: AnyTensor) -> AnyTensor:
    """Returns an array in the library and on the device of `like`."""
    if isinstance(like, np.ndarray):
        return array
    return library_of(like).from_numpy(array).to(like.device)


def take(values: AnyTensor, columns: AnyTensor) -> AnyTensor:
    """Selects columns of each row. [B, n, …], [B, K] -> [B, K, …]"""
    return values[_row_numbers(values), columns]


def scatter(part: AnyTensor, columns: AnyTensor, like: AnyTensor) -> AnyTensor:
    """Returns zeros with `part` in different columns of each row.

    [B, K, …], [B, K], [B, n, …] -> [B, n, …]
    """
    zeros = library_of(like).zeros_like(like)
    zeros[_row_numbers(like), columns] = part
    return zeros


def add_at(target: AnyTensor, columns: AnyTensor, part: AnyTensor) -> AnyTensor:
    """Adds `part` to columns of each row, in place; columns may repeat. [B, n], [B, K], [B, K]"""
    if not isinstance(target, np.ndarray):
        return target.scatter_add_(1, columns, part)
    np.add.at(target, (_row_numbers(target), columns), part)
    return target


@cache
def _numbers(rows: int) -> NDArray[np.int64]:
    return np.arange(rows)[:, None]


def _row_numbers(values: AnyTensor) -> AnyTensor:
    """Returns 0 … B - 1. [B, …] -> [B, 1]"""
    if isinstance(values, np.ndarray):
        return _numbers(len(values))
    return library_of(values).arange(len(values), device=values.device)[:, None]


def select_action_values(values: AnyTensor, action: AnyTensor) -> AnyTensor:
    """Selects the values of an action. [B, num_actions, N], [B, 1] -> [B, N]"""
    return take(values, action)[:, 0]


def expand_gradient(by_action: AnyTensor, values: AnyTensor, action: AnyTensor) -> AnyTensor:
    """Returns the gradient with respect to all outputs, given the one for the action's outputs.

    [B, N], [B, num_actions, N], [B, 1] -> [B, num_actions, N]
    """
    return scatter(by_action[:, None], action, values)


def mask_invalid(values: AnyTensor, mask: AnyTensor | None) -> AnyTensor:
    """Returns the values, with -inf for invalid actions; without a mask all are valid. [B, n]"""
    return values if mask is None else library_of(values).where(mask, values, -np.inf)


def argmax(values: AnyTensor) -> AnyTensor:
    """Returns the index of the first maximum of each row. [B, n] -> [B, 1]"""
    return values.argmax(1)[:, None]


def split(values: AnyTensor, sizes: Sequence[int]) -> list[AnyTensor]:
    """Splits the columns into groups of these sizes. [B, n] -> [B, size] …"""
    return [values[:, low:high] for low, high in pairwise([0, *accumulate(sizes)])]


def log_softmax(values: AnyTensor, axis: int = 1) -> AnyTensor:
    """Returns the logarithm of the softmax along an axis, the same shape as `values`."""
    if not isinstance(values, np.ndarray):
        return values.log_softmax(axis)
    shifted = values - values.max(axis, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis, keepdims=True))
    return shifted


def softmax(values: AnyTensor, axis: int = 1) -> AnyTensor:
    """Returns the softmax along an axis, the same shape as `values`."""
    return library_of(values).exp(log_softmax(values, axis))


def logsumexp(values: AnyTensor) -> AnyTensor:
    """Returns log(sum(exp(x))) of each row. [B, n] -> [B, 1]"""
    library = library_of(values)
    highest = library.amax(values, 1)[:, None]
    return highest + library.log(library.exp(values - highest).sum(1))[:, None]
