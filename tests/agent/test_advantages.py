"""Generalised advantage estimation over episodes of different lengths in one rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.agent.advantages import Segments, advantages

GAMMA, LAMBDA = 0.9, 0.8


def test_five_steps_by_hand() -> None:
    """Environment 0 terminates after two steps. Environment 1 is truncated after one step, and its
    next episode is cut off by the end of the rollout after two."""
    episode = np.array([0, 5, 0, 6, 6])
    reward = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    discount = np.array([0.9, 0.9, 0.0, 0.9, 0.9], np.float32)
    value = np.array([10.0, 20.0, 30.0, 40.0, 50.0], np.float32)
    segments = Segments(episode)
    assert segments.next.tolist() == [2, -1, -1, 4, -1]
    assert sorted(segments.last.tolist()) == [1, 2, 4]
    last = {1: 21.0, 2: 31.0, 4: 51.0}  # V(next_obs)
    result = advantages(
        segments,
        reward=reward,
        discount=discount,
        value=value,
        last_value=np.array([last[row] for row in segments.last.tolist()]),
        gae_lambda=LAMBDA,
    )
    last_advantage = 5 + 0.9 * 51 - 50  # end of the rollout: bootstraps from V(next_obs)
    expected = [
        (1 + 0.9 * 30 - 10) + 0.9 * 0.8 * (3 - 30),
        2 + 0.9 * 21 - 20,  # truncation: bootstraps from V(next_obs), and the lambda sum ends
        3 - 30,  # termination: no bootstrap
        (4 + 0.9 * 50 - 40) + 0.9 * 0.8 * last_advantage,
        last_advantage,
    ]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def explicit_sums(episodes: dict[int, list[int]], columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Computes each advantage as an explicit sum over the rest of its episode, in float64."""
    result = np.zeros(len(columns["reward"]))
    for rows in episodes.values():
        for start, row in enumerate(rows):
            factor = 1.0
            for position, later in enumerate(rows[start:], start):
                is_last = position + 1 == len(rows)
                next_value = (
                    columns["bootstrap"][later] if is_last else columns["value"][rows[position + 1]]
                )
                delta = columns["reward"][later] + columns["discount"][later] * next_value
                result[row] += factor * (delta - columns["value"][later])
                factor *= columns["discount"][later] * LAMBDA
    return result


@pytest.mark.parametrize("seed", range(4))
def test_advantages_of_interleaved_episodes_are_sums_within_each_episode(seed: int) -> None:
    rng = np.random.default_rng(seed)
    running, next_episode = list(range(6)), 6
    episode, ended = [], []
    for _ in range(40):
        for env in range(6):
            if rng.random() < 0.1:  # a reset step yields no row
                continue
            episode.append(running[env])
            ended.append(rng.random() < 0.15)
            if ended[-1]:
                running[env], next_episode = next_episode, next_episode + 1
    rows = len(episode)
    columns = {
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.where(ended & (rng.random(rows) < 0.5), 0.0, GAMMA),
        "value": rng.normal(size=rows),
        "bootstrap": rng.normal(size=rows),
    }
    episodes: dict[int, list[int]] = {}
    for row, number in enumerate(episode):
        episodes.setdefault(number, []).append(row)
    segments = Segments(np.array(episode))
    result = advantages(
        segments,
        reward=columns["reward"],
        discount=columns["discount"],
        value=columns["value"],
        last_value=columns["bootstrap"][segments.last],
        gae_lambda=LAMBDA,
    )
    np.testing.assert_allclose(result, explicit_sums(episodes, columns), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("gae_lambda", "expected"), [(0.0, [0.5, 1.0]), (1.0, [1.4, 1.0])])
def test_lambda_0_gives_errors_of_one_step_and_lambda_1_whole_returns(
    gae_lambda: float, expected: list[float]
) -> None:
    result = advantages(
        Segments(np.array([3, 3])),
        reward=np.array([0.5, 1.0]),
        discount=np.array([0.9, 0.0]),
        value=np.zeros(2),
        last_value=np.zeros(1),
        gae_lambda=gae_lambda,
    )
    np.testing.assert_allclose(result, expected)
