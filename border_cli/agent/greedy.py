"""Conversion of network outputs to actions, for acting and for exported models.

Runs on numpy arrays, or on torch tensors when a graph is exported; both libraries provide the
functions used. An exported policy imports this module, so it must not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import DiscreteActions, action_bounds, components_of
from border_cli.core.spaces import BoxSpace, LeafSpace, MultiDiscreteSpace


@dataclass(frozen=True, slots=True)
class GreedyForm:
    """A rule for greedy actions. `values`: the action with the highest value, or with `atoms` the
    highest mean. `logits`: the most likely choice of each component. `tanh`: tanh of the first A
    outputs, rescaled to the bounds. `clip`: the first A outputs, clipped to the bounds.
    """

    kind: str
    atoms: tuple[float, float, int] | None = None  # v_min, v_max and the number of atoms


def greedy(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Returns the index of the first maximum in each row. [N, n] -> [N]"""
    best: NDArray[np.int64] = values.argmax(1)
    return best


class ActionSelector:
    """Implements a `GreedyForm`, on numpy arrays or, if `library` is torch, on tensors."""

    def __init__(
        self,
        form: GreedyForm,
        space: LeafSpace,
        library: Any = np,
        constant: Callable[..., Any] = np.asarray,
    ) -> None:
        """`constant` converts a numpy array to a constant of the library."""
        self._library, self._kind, atoms = library, form.kind, form.atoms
        self._support = None if atoms is None else constant(np.linspace(*atoms, dtype=np.float32))
        # The ndarray method takes less time than np.amax for a single row.
        self._max: Any = np.ndarray.max if library is np else library.amax
        self._is_multi = isinstance(space, MultiDiscreteSpace)
        self._bounds = action_bounds(space) if form.kind == "tanh" else None
        self._clip_bounds: list[Any] | None = None  # low and high, [A] each
        self._width: int | None = None  # number of outputs used, None for all
        if self._bounds is not None:
            low, high = self._bounds.space.low.ravel(), self._bounds.space.high.ravel()
            ranges = self._bounds.middle, self._bounds.half, low, high
            self._range = [constant(np.array(part)) for part in ranges]
        elif form.kind == "clip":
            assert isinstance(space, BoxSpace)
            self._clip_bounds = [constant(bound.ravel()) for bound in (space.low, space.high)]
            self._width = space.low.size
        elif form.kind == "values":
            self._actions = DiscreteActions(space, constant)
        else:
            ends = [0, *accumulate(components_of(space) or ())]
            self._slices = [slice(*edges) for edges in pairwise(ends)]
            self._width = ends[-1]

    def values(self, outputs: Any) -> Any:
        """Returns the input of `actions`: Q(s, ·), logits, actions in [-1, 1], or, with `clip`,
        actions before clipping. [N, n]"""
        if self._bounds is not None:
            return self._library.tanh(outputs[:, : self._bounds.size])
        if self._support is None:
            return outputs if self._width is None else outputs[:, : self._width]
        logits = outputs.reshape(outputs.shape[0], -1, self._support.shape[0])  # [N, n, atoms]
        unnormalised = self._library.exp(logits - self._max(logits, 2, keepdims=True))
        return (unnormalised @ self._support) / unnormalised.sum(2)

    def actions(self, values: Any, mask: Any = None, pick: Callable[[Any], Any] = greedy) -> Any:
        """Returns actions [N] or [N, A]. A mask [N, n] sets the values of invalid choices to -inf.

        `pick` selects from the values of joint actions, or of one component's choices. [N, n]
        """
        if self._bounds is not None:
            middle, half, low, high = self._range
            return self._library.clip(middle + half * values, low, high)
        if self._clip_bounds is not None:
            return self._library.clip(values, *self._clip_bounds)
        if mask is not None:
            mask = self._actions.joint_mask(mask) if self._kind == "values" else mask
            worst = self._library.full_like(values, -np.inf)
            values = self._library.where(mask, values, worst)
        if not self._is_multi:
            return pick(values)
        if self._kind == "values":
            return self._actions.to_env(pick(values))
        return self._library.stack([pick(values[:, part]) for part in self._slices], 1)
