"""From the outputs of a network to actions, chosen greedily or as a policy explores.

In numpy, or in torch for a graph: both know the functions that are called here. An exported policy
acts with this, so nothing here needs torch.
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
    """`values`: the action of the highest one; with `atoms`, of the highest mean of distributions
    over them. `logits`: the most likely choice of each component. `tanh`: the first A outputs, from
    -1 … 1 to the bounds of the action. `clip`: the first A outputs, clipped to the bounds.
    """

    kind: str
    atoms: tuple[float, float, int] | None = None  # v_min, v_max and their number


def greedy(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """The choice of the highest value; of equal ones the first. [N, n] -> [N]"""
    best: NDArray[np.int64] = values.argmax(1)
    return best


class Choice:
    """What a `GreedyForm` says. Arrays are numpy's, or tensors where `library` is torch."""

    def __init__(
        self,
        form: GreedyForm,
        space: LeafSpace,
        library: Any = np,
        constant: Callable[..., Any] = np.asarray,
    ) -> None:
        """`constant` makes an array of the library out of one of numpy."""
        self._library, self._kind, atoms = library, form.kind, form.atoms
        self._support = None if atoms is None else constant(np.linspace(*atoms, dtype=np.float32))
        # That of numpy's arrays takes less time for one row.
        self._max: Any = np.ndarray.max if library is np else library.amax
        self._several = isinstance(space, MultiDiscreteSpace)
        self._bounds = action_bounds(space) if form.kind == "tanh" else None
        self._clipped: list[Any] | None = None  # low and high of each of the A numbers
        self._width: int | None = None  # outputs that choose; None: all of them
        if self._bounds is not None:
            low, high = self._bounds.space.low.ravel(), self._bounds.space.high.ravel()
            ranges = self._bounds.middle, self._bounds.half, low, high
            self._range = [constant(np.array(each)) for each in ranges]
        elif form.kind == "clip":
            assert isinstance(space, BoxSpace)
            self._clipped = [constant(each.ravel()) for each in (space.low, space.high)]
            self._width = space.low.size
        elif form.kind == "values":
            self._actions = DiscreteActions(space, constant)
        else:
            ends = [0, *accumulate(components_of(space) or ())]
            self._slices = [slice(*each) for each in pairwise(ends)]
            self._width = ends[-1]

    def values(self, outputs: Any) -> Any:
        """What the choice is made of: Q(s, ·), logits, or actions between -1 and 1. [N, n]"""
        if self._bounds is not None:
            return self._library.tanh(outputs[:, : self._bounds.size])
        if self._support is None:
            return outputs if self._width is None else outputs[:, : self._width]
        logits = outputs.reshape(outputs.shape[0], -1, self._support.shape[0])  # [N, n, atoms]
        odds = self._library.exp(logits - self._max(logits, 2, keepdims=True))
        return (odds @ self._support) / odds.sum(2)

    def actions(self, values: Any, mask: Any = None, pick: Callable[[Any], Any] = greedy) -> Any:
        """[N], or [N, A]; valid ones where there is a mask [N, n], the others of value -inf.

        `pick` chooses by values [N, n], of joint actions, or of the choices of one component.
        """
        if self._bounds is not None:
            middle, half, low, high = self._range
            return self._library.clip(middle + half * values, low, high)
        if self._clipped is not None:
            return self._library.clip(values, *self._clipped)
        if mask is not None:
            mask = self._actions.joint_mask(mask) if self._kind == "values" else mask
            worst = self._library.full_like(values, -np.inf)
            values = self._library.where(mask, values, worst)
        if not self._several:
            return pick(values)
        if self._kind == "values":
            return self._actions.to_env(pick(values))
        return self._library.stack([pick(values[:, each]) for each in self._slices], 1)
