"""Environments that spend a step of their own on a reset: such a step gives no row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.core.types import Array, Step
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep

GAMMA = 0.9
TIMES = 120


def resetting_steps(rng: np.random.Generator, num_envs: int, named: bool) -> list[Step]:
    """Whoever ended does not move in the next step, and shows a reward that must not count."""
    steps = []
    moved = np.ones(num_envs, np.bool_)
    for t in range(TIMES):
        label = np.array([[1000 * t + i] for i in range(num_envs)], np.float32)
        ends = rng.random((2, num_envs)) < 0.08
        reward = rng.normal(size=num_envs).astype(np.float32)
        reward[~moved] = 1e6
        steps.append(
            Step(
                obs=_observed(label, named),
                action=label[:, 0].astype(np.int64),
                reward=reward,
                terminated=ends[0] & moved,
                truncated=ends[1] & moved,
                next_obs=_observed(label + 0.5, named),
                act_obs=_observed(label + 1000, named),
                moved=None if moved.all() else moved,
            )
        )
        moved = ~((ends[0] | ends[1]) & moved)
    return steps


def _observed(label: Any, named: bool) -> Array:
    return {"only": label} if named else label


def _column(obs: Array) -> Any:
    return obs["only"][:, 0] if isinstance(obs, dict) else obs[:, 0]


def expected_rows(steps: list[Step], n: int) -> list[list[tuple[float, ...]]]:
    """By the definition, for every step: (start, reward, discount, end) in order of the start."""
    completed: list[list[tuple[float, ...]]] = [[] for _ in steps]
    for start, first in enumerate(steps):
        for i in range(len(first.reward)):
            if first.moved is not None and not first.moved[i]:
                continue
            total, last = 0.0, start
            while last < len(steps):
                total += GAMMA ** (last - start) * float(steps[last].reward[i])
                ended = steps[last].terminated[i] or steps[last].truncated[i]
                if ended or last == start + n - 1:
                    discount = 0.0 if steps[last].terminated[i] else GAMMA ** (last - start + 1)
                    row = (1000 * start + i, total, discount, 1000 * last + i + 0.5)
                    completed[last].append(row)
                    break
                last += 1
    return completed


@pytest.mark.parametrize("named", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("num_envs", [1, 2, 6])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_rows_agree_with_brute_force_where_resets_take_a_step(n, num_envs, named):
    steps = resetting_steps(np.random.default_rng([n, num_envs]), num_envs, named)
    assert sum(step.env_steps for step in steps) < TIMES * num_envs
    n_step = NStep(NStepConfig(n_steps=n), gamma=GAMMA, num_envs=num_envs)
    made = 0
    for t, expected in enumerate(expected_rows(steps, n)):
        rows = n_step.process(steps[t])
        columns = (_column(rows.obs), rows.reward, rows.discount, _column(rows.next_obs))
        found = list(zip(*(column.tolist() for column in columns), strict=True))
        assert len(found) == len(expected)
        np.testing.assert_allclose(found, expected or found, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(rows.action, _column(rows.obs))
        assert (rows.reward.dtype, rows.discount.dtype) == (np.float32, np.float32)
        made += len(rows)
        assert made + n_step.pending == sum(step.env_steps for step in steps[: t + 1])


def test_a_step_in_which_nobody_moved_gives_no_row():
    n_step = NStep(NStepConfig(n_steps=1), gamma=GAMMA, num_envs=1)
    zeros = np.zeros((1, 1), np.float32)
    rows = n_step.process(
        Step(
            obs=zeros,
            action=np.zeros(1, np.int64),
            reward=np.zeros(1, np.float32),
            terminated=np.zeros(1, np.bool_),
            truncated=np.zeros(1, np.bool_),
            next_obs=zeros,
            act_obs=zeros,
            moved=np.zeros(1, np.bool_),
        )
    )
    assert len(rows) == 0
