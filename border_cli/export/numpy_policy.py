"""An exported policy in numpy alone: the twins of the networks, and the greedy choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import DiscreteActions, action_bounds
from border_cli.core.spaces import MultiDiscreteSpace, has_masks, split_mask
from border_cli.core.types import Array
from border_cli.errors import CheckpointError
from border_cli.export.form import PolicyForm
from border_cli.nn.numpy_network import TWINS
from border_cli.run.exported import ExportedFolder
from border_cli.system.files import POLICY_JSON

Rows: TypeAlias = NDArray[np.float32]  # [N, …]
Mask: TypeAlias = NDArray[np.bool_]  # [N, n]


class GreedyChoice:
    """From the outputs of a network to actions: what `PolicyForm.greedy` says."""

    def __init__(self, form: PolicyForm) -> None:
        self._space, self._kind = form.spec.action, form.greedy.kind
        atoms = form.greedy.atoms
        self._support = None if atoms is None else np.linspace(*atoms, dtype=np.float32)
        self._bounds = action_bounds(self._space) if self._kind == "tanh" else None
        if self._bounds is None:
            self._discrete = DiscreteActions(self._space)
            self._ends = np.cumsum(self._discrete.nvec)[:-1]

    def values(self, outputs: Rows) -> Rows:
        """What the choice is made of: Q(s, ·), logits, or actions between -1 and 1."""
        if self._bounds is not None:
            return np.tanh(outputs[:, : self._bounds.size])
        if self._support is None:
            return outputs
        logits = outputs.reshape(len(outputs), -1, len(self._support))  # [N, num_actions, atoms]
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))
        q: Rows = odds.dot(self._support) / odds.sum(axis=2)
        return q

    def actions(self, values: Rows, mask: Mask | None) -> NDArray[Any]:
        """[N] or [N, …], valid ones where there is a mask."""
        if self._bounds is not None:
            return self._bounds.to_env(values)
        if self._kind == "values":
            joint = None if mask is None else self._discrete.joint_mask(mask)
            return self._discrete.to_env(_best(values, joint))
        parts = np.split(values, self._ends, axis=1)
        valid = [None] * len(parts) if mask is None else np.split(mask, self._ends, axis=1)
        chosen = [_best(part, each) for part, each in zip(parts, valid, strict=True)]
        several = isinstance(self._space, MultiDiscreteSpace)
        return np.stack(chosen, axis=1) if several else chosen[0]

    def margins(self, values: Rows, mask: Mask | None) -> Rows:
        """By how much the best of a choice is ahead of the next; infinite where nothing is chosen
        among several. [N]"""
        if self._bounds is not None:
            return np.full(len(values), np.inf, np.float32)
        ends = self._ends
        if self._kind == "values":
            ends, mask = ends[:0], None if mask is None else self._discrete.joint_mask(mask)
        allowed = values if mask is None else np.where(mask, values, np.float32(-np.inf))
        found = [np.full(len(values), np.inf, np.float32)]
        for part in np.split(allowed, ends, axis=1):
            if part.shape[1] > 1:
                best = np.sort(part, axis=1)[:, -2:]
                found.append(best[:, 1] - best[:, 0])
        least: Rows = np.minimum.reduce(found)
        return least


def _best(values: Rows, valid: Mask | None) -> NDArray[np.int64]:
    allowed = values if valid is None else np.where(valid, values, np.float32(-np.inf))
    best: NDArray[np.int64] = allowed.argmax(axis=1)
    return best


class NumpyPolicy:
    """Acts greedily; owned by the thread that calls it."""

    def __init__(self, form: PolicyForm, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.form = form
        self._masked = has_masks(form.spec.observation)
        self._network = TWINS[form.twin](form.architecture, None, **form.twin_form)
        self._network.load(arrays)
        self._choice = GreedyChoice(form)

    def act(self, obs: Array, *, explore: bool = False) -> NDArray[Any]:
        """Actions for N observations as rows: [N] int64, or [N, …]. It never explores."""
        assert not explore
        return self.values_and_actions(obs)[1]

    def values_and_actions(self, obs: Array) -> tuple[Rows, NDArray[Any]]:
        """What the actions are chosen by, and the actions."""
        seen, mask = split_mask(obs) if self._masked else (obs, None)
        values = self._choice.values(self._network(seen))
        return values, self._choice.actions(values, mask)


def numpy_policy(folder: ExportedFolder) -> NumpyPolicy:
    """The policy of a folder with `policy.npz`; raises CheckpointError where it is damaged."""
    arrays = folder.arrays()
    try:
        return NumpyPolicy(PolicyForm.from_json(folder.content), arrays)
    except (LookupError, TypeError, ValueError, AssertionError) as error:
        raise CheckpointError(
            f"{folder.place / POLICY_JSON} is damaged: {type(error).__name__}: {error}"
        ) from error
