"""Running discounted returns, compared with brute force and with values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.core.returns import DiscountedReturns, Moments
from tests.support.discounted_returns import described, pooled, running_returns
from tests.support.saved_states import reread, same


def see(returns: DiscountedReturns, reward: Any, ended: Any = None, moved: Any = None) -> None:
    reward = np.array(reward, np.float32)
    ended = np.zeros(len(reward), bool) if ended is None else np.array(ended)
    returns.update(reward, ended, None if moved is None else np.array(moved))


def test_each_step_gives_the_discounted_sum_of_its_episode_so_far() -> None:
    returns = DiscountedReturns(0.5, 1)
    for reward, ended in ((1, False), (2, False), (4, True), (8, False)):
        see(returns, [reward], [ended])
    values = returns.state_dict()["untaken"]
    assert values.tolist() == [1, 2 + 0.5, 4 + 1 + 0.25, 8]  # no reward is carried past the end
    # (1 + 2.5 + 5.25 + 8) / 4; and the squares of -3.1875, -1.6875, 1.0625, 3.8125
    assert returns.take() == (Moments(4, 4.1875, 28.671875),)
    assert returns.take() == ()


def test_environments_have_returns_of_their_own() -> None:
    returns = DiscountedReturns(0.5, 2)
    see(returns, [1, 10], [False, True])
    see(returns, [2, 20])
    assert returns.state_dict()["untaken"].tolist() == [1, 10, 2.5, 20]


def test_a_step_that_only_resets_gives_no_return() -> None:
    returns = DiscountedReturns(0.5, 2)
    see(returns, [1, 10], [False, True])
    see(returns, [2, 0], moved=[True, False])
    see(returns, [4, 20])
    assert returns.state_dict()["untaken"].tolist() == [1, 10, 2.5, 5.25, 20]
    see(returns, [0, 0], moved=[False, False])
    returns.take()
    see(returns, [0, 0], moved=[False, False])
    assert returns.take() == ()


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_moments_agree_with_brute_force_however_they_are_taken(num_envs: int, gamma: float) -> None:
    rng = np.random.default_rng([num_envs, 7])
    reward = rng.normal(3, 2, (400, num_envs)).astype(np.float32)
    ended = rng.random((400, num_envs)) < 0.05
    returns = DiscountedReturns(gamma, num_envs)
    moments: list[Moments] = []
    for t in range(400):
        see(returns, reward[t], ended[t])
        if rng.random() < 0.1:
            moments += returns.take()
    moments += returns.take()
    expected = described(running_returns(reward, ended, gamma))
    assert pooled(moments) == pytest.approx(expected, rel=1e-9)


def test_a_copy_from_the_state_goes_on_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    reward = rng.normal(size=(60, 3)).astype(np.float32)
    ended = rng.random((60, 3)) < 0.1
    original = DiscountedReturns(0.97, 3)
    for t in range(25):
        see(original, reward[t], ended[t])
    state = original.state_dict()
    expected = reread(state)
    restored = DiscountedReturns(0.97, 3)
    restored.load_state_dict(reread(state))
    for t in range(25, 60):
        for returns in (original, restored):
            see(returns, reward[t], ended[t])
    assert restored.take() == original.take()
    assert same(restored.state_dict(), original.state_dict())
    assert same(state, expected)  # the saved state was not changed


def test_an_episode_that_begins_anew_has_no_return_yet() -> None:
    returns = DiscountedReturns(0.5, 3)
    see(returns, [8, 8, 8])
    state = returns.state_dict()
    returns.forget([0, 2])
    see(returns, [1, 1, 1])
    assert returns.state_dict()["untaken"].tolist() == [8, 8, 8, 1, 5, 1]
    assert state["running"].tolist() == [8, 8, 8]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_shows_in_the_moments(bad: float) -> None:
    returns = DiscountedReturns(0.5, 1)
    for reward in (1.0, bad, 2.0):
        see(returns, [reward])
    assert not np.isfinite(returns.take()[0].squares)
