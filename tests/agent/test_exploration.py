"""How often which action is tried."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.agent.exploration import epsilon_greedy, greedy, linear, softmax, uniform

DRAWS = 30_000  # a share of p is then off by more than 0.015 in one of a million runs


def shares(action: np.ndarray, num_actions: int) -> list[float]:
    assert action.dtype == np.int64
    return (np.bincount(action, minlength=num_actions) / len(action)).tolist()


def rows(*q: float) -> np.ndarray:
    return np.tile(np.array(q, np.float32), (DRAWS, 1))


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_a_linear_schedule_falls_to_its_end_and_stays():
    values = [linear(1.0, 0.2, progress) for progress in (0, 0.25, 0.5, 1, 7)]
    assert values == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


def test_greedy_takes_the_first_of_equal_values():
    assert greedy(np.array([[1, 2, 2], [3, 0, 3]], np.float32)).tolist() == [1, 0]


def test_uniform_takes_every_action_equally_often():
    assert shares(uniform(4, DRAWS, rng()), 4) == pytest.approx([0.25] * 4, abs=0.015)


def test_epsilon_greedy_takes_the_best_action_unless_it_explores_all():
    action = epsilon_greedy(rows(0, 5, 1), 0.3, rng())
    assert shares(action, 3) == pytest.approx([0.1, 0.8, 0.1], abs=0.015)


def test_epsilon_zero_never_explores_and_epsilon_one_always():
    assert epsilon_greedy(rows(0, 5), 0.0, rng()).all()
    assert shares(epsilon_greedy(rows(0, 5), 1.0, rng()), 2) == pytest.approx([0.5, 0.5], abs=0.015)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [1 / 3, 2 / 3]), (0.5, [0.2, 0.8])])
def test_softmax_takes_actions_by_the_exponential_of_their_value(temperature, expected):
    q = rows(0, np.log(2))  # e^(q / T): 1 and 2, or 1 and 4
    assert shares(softmax(q, temperature, rng()), 2) == pytest.approx(expected, abs=0.015)


def test_softmax_at_temperature_zero_is_greedy_and_at_any_size_of_values_finite():
    assert softmax(rows(0, 1e-3), 0.0, rng()).all()
    assert softmax(rows(-1e6, 1e6), 1.0, rng()).all()


@pytest.mark.parametrize("explore", [epsilon_greedy, softmax])
def test_each_environment_draws_for_itself(explore):
    """Two environments side by side agree only as often as chance lets them."""
    generator = rng()
    pairs = np.array([explore(np.zeros((2, 2), np.float32), 1.0, generator) for _ in range(4_000)])
    assert (pairs[:, 0] == pairs[:, 1]).mean() == pytest.approx(0.5, abs=0.04)
