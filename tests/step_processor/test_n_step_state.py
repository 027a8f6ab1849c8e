"""n-step windows that are saved, restored and forgotten."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from border_cli.core.rows import columns_of
from border_cli.core.types import Step, Transitions
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.case_sampling import sampled
from tests.support.random_steps import random_steps
from tests.support.saved_states import reread, same


def processor(n_steps: int, num_envs: int) -> NStep:
    return NStep(NStepConfig(n_steps=n_steps), gamma=0.97, num_envs=num_envs)


def columns(rows: Transitions) -> dict[str, Any]:
    return {name: np.ascontiguousarray(column) for name, column in columns_of(rows).items()}


@pytest.mark.parametrize("resets", sampled([False, True], every=4, ids=["", "resets"]))
@pytest.mark.parametrize("named", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("num_envs", sampled([1, 4], every=2))
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_restored_windows_give_the_same_rows_to_the_bit(n, num_envs, named, resets):
    steps = random_steps(
        np.random.default_rng([n, num_envs]), num_envs, named=named, resets=resets, count=200
    )
    n_step = processor(n, num_envs)
    pending_counts = set()
    for t, step in enumerate(steps):
        if t % 7 == 0 or t < 6:
            state = n_step.state_dict()
            before = copy.deepcopy(state)
            restored = processor(n, num_envs)
            restored.process(step)  # the previous content does not matter
            restored.load_state_dict(reread(state))
            assert restored.pending == n_step.pending
            pending_counts.add(n_step.pending)
            original = copy.deepcopy(n_step)
            for later in steps[t : t + 25]:
                expected = columns(original.process(later))
                assert same(columns(restored.process(later)), expected)
            assert same(state, before)
        n_step.process(step)
        if t % 7 == 0:
            assert same(state, before)
    assert max(pending_counts) == num_envs * (n - 1)


@pytest.mark.parametrize("named", sampled([False, True], every=4, ids=["array", "dict"]))
@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_forgotten_windows_lose_their_rows_and_all_others_go_on(n, resets, named):
    steps = random_steps(np.random.default_rng(n), 4, named=named, resets=resets, count=120)
    lost = 0
    for cut in range(20, 60, 3):
        whole, forgetful = processor(n, 4), processor(n, 4)
        for step in steps[:cut]:
            whole.process(step)
            forgetful.process(step)
        pending = whole.pending
        forgetful.forget([1, 3])
        pending_after = forgetful.pending
        lost += pending - pending_after
        counts = [0, 0]
        for t in range(cut, cut + 40):
            expected, rows = whole.process(steps[t]), forgetful.process(steps[t])
            # Earlier rows of environments 1 and 3 are missing; all others keep their order.
            start, env = expected.action // 1000, expected.action % 1000
            keep = np.isin(env, [0, 2]) | (start >= cut)
            parts = {name: np.asarray(part)[keep] for name, part in columns_of(expected).items()}
            for name, column in columns_of(replace(rows, extras={})).items():
                np.testing.assert_array_equal(column, parts[name])
            counts = [counts[0] + len(expected), counts[1] + len(rows)]
        assert counts[0] - counts[1] == pending - pending_after
    assert (lost > 0) == (n > 1)


def test_forgetting_nobody_changes_nothing():
    n_step = processor(3, 2)
    for step in random_steps(np.random.default_rng(0), 2, count=9):
        n_step.process(step)
    before = n_step.state_dict()
    n_step.forget([])
    assert same(n_step.state_dict(), before)


def test_a_forgotten_window_fills_again_by_hand():
    """Rewards are 1, 2, 4, 8, 16, gamma is 0.5, and the first two steps are forgotten."""
    n_step = NStep(NStepConfig(n_steps=3), gamma=0.5, num_envs=1)
    rows = []
    for t, reward in enumerate([1, 2, 4, 8, 16]):
        if t == 2:
            n_step.forget([0])
            assert n_step.pending == 0
        obs = np.full((1, 1), t, np.float32)
        no = np.zeros(1, np.bool_)
        step = Step(obs, np.array([t]), np.array([reward], np.float32), no, no, obs + 1, obs + 1)
        rows.append(n_step.process(step))
    assert [len(part) for part in rows] == [0, 0, 0, 0, 1]
    assert rows[4].reward.tolist() == [4 + 0.5 * 8 + 0.25 * 16]
    assert rows[4].obs.tolist() == [[2]]
