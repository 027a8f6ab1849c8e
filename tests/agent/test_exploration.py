"""How often which action is tried."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from border_cli.agent.policies import EpsilonGreedy, greedy, linear, softmax, uniform

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
    action = EpsilonGreedy(rng())(rows(0, 5, 1), 0.3)
    assert shares(action, 3) == pytest.approx([0.1, 0.8, 0.1], abs=0.015)


def test_epsilon_zero_never_explores_and_epsilon_one_always():
    explore = EpsilonGreedy(rng())
    assert explore(rows(0, 5), 0.0).all()
    assert shares(explore(rows(0, 5), 1.0), 2) == pytest.approx([0.5, 0.5], abs=0.015)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0])
def test_what_is_explored_is_uniform_whatever_epsilon_is(epsilon):
    """One number says whether and which, so the second must not depend on the first."""
    q = np.zeros((200_000, 3), np.float32)
    q[:, 1] = 1
    action, explore = np.zeros(0, np.int64), EpsilonGreedy(rng())
    while np.count_nonzero(action != 1) < 400:
        action = np.concatenate([action, explore(q, epsilon)])
    first, _, last = np.bincount(action, minlength=3)
    assert last / (first + last) == pytest.approx(0.5, abs=0.125)  # 5 deviations of 400 draws


@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_few_rows_at_a_time_explore_as_often_as_many(num_rows):
    """Across the blocks in which random numbers are drawn."""
    explore, q = EpsilonGreedy(rng()), rows(0, 5, 1)[:num_rows]
    action = np.concatenate([explore(q, 0.3) for _ in range(DRAWS // num_rows)])
    assert shares(action, 3) == pytest.approx([0.1, 0.8, 0.1], abs=0.015)


class Highest:
    """A generator whose every number is the greatest below `bound`."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def random(self, size: int) -> np.ndarray:
        return np.full(size, np.nextafter(self.bound, 0.0))


def test_no_number_leads_to_an_action_that_does_not_exist():
    for epsilon in (1.0, 0.7, 0.05, 1e-9):
        for num_actions in range(1, 300):
            q = np.zeros((1, num_actions), np.float32)
            assert EpsilonGreedy(Highest(epsilon))(q, epsilon) == [num_actions - 1]


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [1 / 3, 2 / 3]), (0.5, [0.2, 0.8])])
def test_softmax_takes_actions_by_the_exponential_of_their_value(temperature, expected):
    q = rows(0, np.log(2))  # e^(q / T): 1 and 2, or 1 and 4
    assert shares(softmax(q, temperature, rng()), 2) == pytest.approx(expected, abs=0.015)


def test_softmax_at_temperature_zero_is_greedy_and_at_any_size_of_values_finite():
    assert softmax(rows(0, 1e-3), 0.0, rng()).all()
    assert softmax(rows(-1e6, 1e6), 1.0, rng()).all()


@pytest.mark.parametrize("explore", [EpsilonGreedy(rng()), partial(softmax, rng=rng())])
def test_each_environment_draws_for_itself(explore):
    """Two environments side by side agree only as often as chance lets them."""
    pairs = np.array([explore(np.zeros((2, 2), np.float32), 1.0) for _ in range(4_000)])
    assert (pairs[:, 0] == pairs[:, 1]).mean() == pytest.approx(0.5, abs=0.04)
