"""n-step rows, compared with brute force and with values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.core.types import EPISODE, Step, Transitions
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep, suffix_powers
from tests.support.case_sampling import sampled
from tests.support.random_steps import brute_force, numbers_of, random_steps


def processor(n_steps: int, gamma: float = 0.5, num_envs: int = 1) -> NStep:
    return NStep(NStepConfig(n_steps=n_steps), gamma=gamma, num_envs=num_envs)


def step_of(t: int, reward: float = 0.0, terminated: bool = False, truncated: bool = False) -> Step:
    """Returns step t of a single environment, from observation t to t + 0.5."""
    obs, next_obs = np.array([[t]], np.float32), np.array([[t + 0.5]], np.float32)
    return Step(
        obs=obs,
        action=np.array([t]),
        reward=np.array([reward], np.float32),
        terminated=np.array([terminated]),
        truncated=np.array([truncated]),
        next_obs=next_obs,
        act_obs=next_obs,
    )


def rows_as_tuples(rows: Transitions) -> list[tuple[Any, ...]]:
    assert isinstance(rows.obs, np.ndarray)
    assert isinstance(rows.next_obs, np.ndarray)
    columns = (rows.obs[:, 0], rows.action, rows.reward, rows.discount, rows.next_obs[:, 0])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_row_leaves_when_it_spans_n_steps():
    n_step = processor(3)
    assert len(n_step.process(step_of(0, reward=1))) == 0
    assert len(n_step.process(step_of(1, reward=2))) == 0
    # 1 + 0.5 * 2 + 0.25 * 4 = 3, and 0.5 ** 3
    assert rows_as_tuples(n_step.process(step_of(2, reward=4))) == [(0, 0, 3.0, 0.125, 2.5)]
    # 2 + 0.5 * 4 + 0.25 * 8
    assert rows_as_tuples(n_step.process(step_of(3, reward=8))) == [(1, 1, 6.0, 0.125, 3.5)]


def test_a_termination_flushes_the_window_without_bootstrap():
    n_step = processor(3)
    for t in range(3):
        n_step.process(step_of(t, reward=1))
    assert rows_as_tuples(n_step.process(step_of(3, reward=8, terminated=True))) == [
        (1, 1, 3.5, 0.0, 3.5),  # 1 + 0.5 + 0.25 * 8
        (2, 2, 5.0, 0.0, 3.5),  # 1 + 0.5 * 8
        (3, 3, 8.0, 0.0, 3.5),
    ]
    assert n_step.pending == 0


def test_a_truncation_flushes_the_window_and_bootstraps_from_the_last_observation():
    n_step = processor(3)
    for t in range(3):
        n_step.process(step_of(t, reward=1))
    assert rows_as_tuples(n_step.process(step_of(3, reward=8, truncated=True))) == [
        (1, 1, 3.5, 0.125, 3.5),
        (2, 2, 5.0, 0.25, 3.5),
        (3, 3, 8.0, 0.5, 3.5),
    ]


def test_a_termination_at_the_time_limit_does_not_bootstrap():
    assert rows_as_tuples(processor(3).process(step_of(0, 1, terminated=True, truncated=True))) == [
        (0, 0, 1.0, 0.0, 0.5)
    ]


def test_an_episode_shorter_than_the_window_is_flushed_whole():
    n_step = processor(5)
    n_step.process(step_of(0, reward=1))
    assert rows_as_tuples(n_step.process(step_of(1, reward=1, truncated=True))) == [
        (0, 0, 1.5, 0.25, 1.5),
        (1, 1, 1.0, 0.5, 1.5),
    ]


def test_no_row_crosses_into_the_next_episode():
    n_step = processor(2)
    n_step.process(step_of(0, reward=100, terminated=True))
    assert len(n_step.process(step_of(1, reward=1))) == 0
    assert rows_as_tuples(n_step.process(step_of(2, reward=1))) == [(1, 1, 1.5, 0.25, 2.5)]


def test_one_step_rows_are_the_arrays_of_the_step():
    n_step = processor(1, gamma=0.9)
    step = step_of(0, reward=2)
    rows = n_step.process(step)
    assert rows.obs is step.obs
    assert rows.next_obs is step.next_obs
    assert rows.action is step.action
    assert rows.reward is step.reward
    assert (rows.discount.tolist(), rows.discount.dtype) == ([np.float32(0.9)], np.float32)
    assert n_step.pending == 0


def test_one_step_rows_bootstrap_through_a_truncation_only():
    n_step = processor(1, gamma=0.9)
    assert n_step.process(step_of(0, truncated=True)).discount.tolist() == [np.float32(0.9)]
    assert n_step.process(step_of(1, terminated=True)).discount.tolist() == [0.0]


def test_full_windows_give_their_arrays_away_without_a_copy():
    n_step = processor(2)
    oldest, newest = step_of(0), step_of(1)
    n_step.process(oldest)
    rows = n_step.process(newest)
    assert rows.obs is oldest.obs
    assert rows.next_obs is newest.next_obs


def test_pending_counts_the_rows_that_still_wait():
    n_step = processor(3)
    waiting = []
    for t in range(8):
        n_step.process(step_of(t, terminated=t == 5))
        waiting.append(n_step.pending)
    assert waiting == [1, 2, 2, 2, 2, 0, 1, 2]


def test_a_reset_forgets_the_windows():
    n_step = processor(3)
    for t in range(4):
        n_step.process(step_of(t, reward=50))
    n_step.reset()
    assert n_step.pending == 0
    assert len(n_step.process(step_of(4, reward=1))) == 0
    assert rows_as_tuples(n_step.process(step_of(5, reward=1, terminated=True))) == [
        (4, 4, 1.5, 0.0, 5.5),
        (5, 5, 1.0, 0.0, 5.5),
    ]


def test_powers_of_gamma_stand_right_of_the_diagonal():
    np.testing.assert_array_equal(suffix_powers(0.5, 3), [[1, 0.5, 0.25], [0, 1, 0.5], [0, 0, 1]])
    np.testing.assert_array_equal(suffix_powers(0.0, 2), np.eye(2))


@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
@pytest.mark.parametrize("named", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("gamma", sampled([0.9, 0.0, 1.0], every=3))
@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_rows_agree_with_brute_force_over_random_episodes(n, num_envs, gamma, named, resets):
    """Environments may also spend a whole step on a reset."""
    rng = np.random.default_rng([n, num_envs])
    steps = random_steps(rng, num_envs, named=named, resets=resets)
    assert (sum(step.env_steps for step in steps) < 80 * num_envs) == resets
    n_step = processor(n, gamma, num_envs)
    n_step.number_episodes(7_000)
    done = np.array([step.terminated | step.truncated for step in steps])  # [T, N]
    numbers: dict[tuple[int, int], int] = {}  # keyed by environment and number of earlier ends
    count = 0
    for t, expected in enumerate(brute_force(steps, n)):
        rows = n_step.process(steps[t])
        assert len(rows) == len(expected)
        count += len(rows)
        assert count + n_step.pending == sum(step.env_steps for step in steps[: t + 1])
        for row, (start, env, span) in enumerate(expected):
            window = steps[start : start + span]
            total = sum(gamma**k * float(step.reward[env]) for k, step in enumerate(window))
            assert rows.reward[row] == pytest.approx(total, rel=1e-6, abs=1e-6)
            bootstrap = 0.0 if steps[t].terminated[env] else gamma**span
            assert rows.discount[row] == pytest.approx(bootstrap, rel=1e-6)
            assert numbers_of(rows.obs)[row] == 1000 * start + env
            assert numbers_of(rows.next_obs)[row] == 1000 * t + env + 0.5
            assert rows.action[row] == 1000 * start + env
            episode = (env, int(done[:start, env].sum()))
            number = rows.extras[EPISODE][row]
            assert numbers.setdefault(episode, number) == number
        if isinstance(rows.obs, dict):
            assert list(rows.obs) == ["b", "a"]
            np.testing.assert_array_equal(rows.obs["a"], rows.obs["b"][:, 0].astype(np.int64))
        assert rows.reward.dtype == rows.discount.dtype == np.float32
    assert len(set(numbers.values())) == len(numbers)
    assert min(numbers.values()) == 7_000


@pytest.mark.parametrize("n", [2, 3, 200])
def test_a_long_episode_gives_the_same_sums_to_its_end(n):
    reward = np.random.default_rng(n).normal(size=700)
    n_step = processor(n, gamma=0.9)
    for t in range(700):
        rows = n_step.process(step_of(t, reward=reward[t]))
        assert len(rows) == (t >= n - 1)
        if len(rows):
            expected = sum(0.9**k * reward[t - n + 1 + k] for k in range(n))
            assert rows.reward[0] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    rest = n_step.process(step_of(700, reward=1.0, terminated=True))
    assert rest.reward[-1] == 1.0
    assert rest.reward[-2] == pytest.approx(reward[699] + 0.9, rel=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_rows_that_were_given_out_are_never_written_again(n):
    steps = random_steps(np.random.default_rng(3), 3)
    n_step = processor(n, 0.9, 3)
    outputs = [n_step.process(step) for step in steps]
    fresh_processor = processor(n, 0.9, 3)
    for rows, step in zip(outputs, steps, strict=True):
        fresh = fresh_processor.process(step)
        for name in ("obs", "action", "reward", "discount", "next_obs"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(fresh, name))
