"""An exported policy in numpy alone: the twins of the networks, and the greedy choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import DiscreteActions, action_bounds
from border_cli.core.spaces import MultiDiscreteSpace, has_masks, split_mask
from border_cli.core.types import Array
from border_cli.export.form import PolicyForm
from border_cli.nn.numpy_network import TWINS

Outputs: TypeAlias = NDArray[np.float32]  # [N, outputs]
Mask: TypeAlias = NDArray[np.bool_]  # [N, n]
Choose: TypeAlias = Callable[[Outputs, Mask | None], NDArray[Any]]


class NumpyPolicy:
    """Acts greedily; owned by the thread that calls it."""

    def __init__(self, form: PolicyForm, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._masked = has_masks(form.spec.observation)
        self._network = TWINS[form.twin](form.architecture, None, **form.twin_form)
        self._network.load(arrays)
        self._choose = choice_of(form)

    def act(self, obs: Array, *, explore: bool = False) -> NDArray[Any]:
        """Actions for N observations as rows: [N] int64, or [N, …]. It never explores."""
        assert not explore
        mask = None
        if self._masked:
            obs, mask = split_mask(obs)
        return self._choose(self._network(obs), mask)


def choice_of(form: PolicyForm) -> Choose:
    """From the outputs of the network, and the valid actions where there are masks, to actions."""
    kind, space = form.greedy.kind, form.spec.action
    if kind == "tanh":
        bounds = action_bounds(space)
        if bounds is None:
            raise ValueError("policy.json: greedy.kind tanh needs an action with bounds")
        return lambda outputs, _: bounds.to_env(np.tanh(outputs[:, : bounds.size]))
    actions = DiscreteActions(space)
    if kind == "values":
        values = _means(form.greedy.atoms)
        return lambda outputs, mask: actions.to_env(
            _best(values(outputs), None if mask is None else actions.joint_mask(mask))
        )
    ends = np.cumsum(actions.nvec)[:-1]

    def most_likely(logits: Outputs, mask: Mask | None) -> NDArray[np.int64]:
        parts = np.split(logits, ends, axis=1)
        masks = [None] * len(parts) if mask is None else np.split(mask, ends, axis=1)
        chosen = [_best(part, valid) for part, valid in zip(parts, masks, strict=True)]
        return np.stack(chosen, axis=1) if isinstance(space, MultiDiscreteSpace) else chosen[0]

    return most_likely


def _best(values: NDArray[Any], valid: Mask | None) -> NDArray[np.int64]:
    found: NDArray[np.int64] = (
        values if valid is None else np.where(valid, values, np.float32(-np.inf))
    ).argmax(axis=1)
    return found


def _means(atoms: tuple[float, float, int] | None) -> Callable[[Outputs], Outputs]:
    """Q(s, ·) out of the outputs: themselves, or means of distributions over the atoms."""
    if atoms is None:
        return lambda outputs: outputs
    support = np.linspace(*atoms, dtype=np.float32)

    def means(outputs: Outputs) -> Outputs:
        logits = outputs.reshape(len(outputs), -1, len(support))  # [N, num_actions, atoms]
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))
        q: Outputs = odds.dot(support) / odds.sum(axis=2)
        return q

    return means
