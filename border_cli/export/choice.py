"""From the outputs of a network to greedy actions: what `policy.json` says of them.

In numpy, or in torch for a graph: both know the functions that are called here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from border_cli.agent.action_space import DiscreteActions, action_bounds
from border_cli.core.spaces import MultiDiscreteSpace
from border_cli.export.form import PolicyForm


class GreedyChoice:
    """Arrays are numpy's, or tensors where `library` is torch."""

    def __init__(
        self, form: PolicyForm, library: Any = np, constant: Callable[..., Any] = np.asarray
    ) -> None:
        """`constant` makes an array of the library out of one of numpy."""
        space, atoms = form.spec.action, form.greedy.atoms
        self._library, self._kind = library, form.greedy.kind
        self._support = None if atoms is None else constant(np.linspace(*atoms, dtype=np.float32))
        self._bounds = action_bounds(space) if self._kind == "tanh" else None
        if self._bounds is not None:
            low, high = self._bounds.space.low.ravel(), self._bounds.space.high.ravel()
            ranges = self._bounds.middle, self._bounds.half, low, high
            self._range = [constant(np.array(each)) for each in ranges]
            return
        actions = DiscreteActions(space)
        self._several = isinstance(space, MultiDiscreteSpace)
        self._ends = [0, *accumulate(actions.nvec)]
        if actions.joint is not None:
            self._joint = constant(actions.joint)  # [n, K]  the choices of each joint action
            self._columns = constant(actions.joint + self._ends[:-1])  # … among those of all

    def values(self, outputs: Any) -> Any:
        """What the choice is made of: Q(s, ·), logits, or actions between -1 and 1. [N, n]"""
        if self._bounds is not None:
            return self._library.tanh(outputs[:, : self._bounds.size])
        if self._support is None:
            return outputs
        logits = outputs.reshape(outputs.shape[0], -1, self._support.shape[0])  # [N, n, atoms]
        odds = self._library.exp(logits - self._library.amax(logits, 2)[:, :, None])
        return (odds * self._support).sum(2) / odds.sum(2)

    def actions(self, values: Any, mask: Any = None) -> Any:
        """[N], or [N, A]; valid ones where there is a mask [N, n]."""
        if self._bounds is not None:
            middle, half, low, high = self._range
            return self._library.clip(middle + half * values, low, high)
        if self._kind == "values" and not self._several:
            return self._best(values, mask)
        if self._kind == "values":
            joint = None if mask is None else mask[:, self._columns].all(2)
            return self._joint[self._best(values, joint)]
        chosen = [
            self._best(values[:, first:end], None if mask is None else mask[:, first:end])
            for first, end in pairwise(self._ends)
        ]
        return self._library.stack(chosen, 1) if self._several else chosen[0]

    def _best(self, values: Any, valid: Any) -> Any:
        if valid is not None:
            worst = self._library.full_like(values, -np.inf)
            values = self._library.where(valid, values, worst)
        return values.argmax(1)
