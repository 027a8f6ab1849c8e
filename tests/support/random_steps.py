"""Random steps of environments, and their n-step transitions by definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from border_cli.core.types import Array, Step


def random_steps(
    rng: np.random.Generator,
    num_envs: int,
    *,
    named: bool = False,
    resets: bool = False,
    count: int = 80,
) -> list[Step]:
    """Returns steps with random ends; observation and action of environment i are 1000 t + i.

    With `resets`, the step after the end of an episode is a reset, and its reward must not count.
    """
    steps = []
    moved = np.ones(num_envs, np.bool_)
    for t in range(count):
        label = 1000 * t + np.arange(num_envs)
        ends = (rng.random((2, num_envs)) < 0.06) & moved
        reward = np.where(moved, rng.normal(size=num_envs), 1e6).astype(np.float32)
        steps.append(
            Step(
                obs=observed(label, named),
                action=label,
                reward=reward,
                terminated=ends[0],
                truncated=ends[1],
                next_obs=observed(label + 0.5, named),
                act_obs=observed(label + 1000, named),
                moved=None if moved.all() else moved,
            )
        )
        if resets:
            moved = ~ends.any(axis=0)
    return steps


def observed(label: Any, named: bool) -> Array:
    """Encodes labels as rows [label, 0]; if `named`, in a dict together with integer labels."""
    rows = np.stack([label, 0 * label], axis=1).astype(np.float32)
    return {"b": rows, "a": label.astype(np.int64)} if named else rows


def numbers_of(obs: Array) -> Any:
    """Returns the labels of observations. [N]"""
    return obs["b"][:, 0] if isinstance(obs, dict) else obs[:, 0]


def brute_force(steps: list[Step], n: int) -> list[list[tuple[int, int, int]]]:
    """Returns, for every step, the n-step windows (start, environment, span) that it completes."""
    done = np.array([step.terminated | step.truncated for step in steps])  # [T, N]
    completed: list[list[tuple[int, int, int]]] = [[] for _ in steps]
    for start, first in enumerate(steps):
        for env in range(done.shape[1]):
            last = start
            if first.moved is not None and not first.moved[env]:
                continue
            while last < start + n - 1 and last < len(steps) and not done[last, env]:
                last += 1
            if last < len(steps):
                completed[last].append((start, env, last - start + 1))
    return completed
