"""One action per observation, and the noise by which it explores."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from states import reread, same

from border_cli.agent.action_space import ActionBounds, action_bounds
from border_cli.agent.config import Noise
from border_cli.agent.continuous_policies import DeterministicPolicy
from border_cli.core.spaces import BoxSpace
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork

ONE_NUMBER = BoxSpace(shape=(1,), dtype="float32", low=np.zeros(1), high=np.ones(1))
# Numbers from -1 to 1 are 1 to 5 and -3 to 3 of the environment.
BOX = BoxSpace(
    shape=(2,),
    dtype="float32",
    low=np.array([1, -3], np.float32),
    high=np.array([5, 3], np.float32),
)
OBS = np.ones((1, 1), np.float32)


def bounds() -> ActionBounds:
    found = action_bounds(BOX)
    assert found is not None
    return found


def policy(constant: float | None = None, seed: int = 0, **settings: Any) -> DeterministicPolicy:
    acting = DeterministicPolicy(
        np.random.default_rng(seed),
        constant,
        network=partial(NumpyNetwork, Architecture(ONE_NUMBER, hidden=())),
        bounds=bounds(),
        **settings,
    )
    acting.load_snapshot(snapshot([0.0, 0.0]))
    return acting


def snapshot(outputs: list[float], warm_up: bool = False) -> Snapshot:
    """Weights with these outputs for every observation."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((2, 1), np.float32),
        "network.mlp.layers.0.bias": np.array(outputs, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


def noise_of(acting: DeterministicPolicy, steps: int, rows: int = 1) -> Any:
    """What was added to actions in units of -1 to 1.  [steps, rows, 2]"""
    obs = np.ones((rows, 1), np.float32)
    taken = np.stack([acting.act(obs, explore=True) for _ in range(steps)])
    return (taken - bounds().middle) / bounds().half


def test_without_exploration_it_is_tanh_in_the_units_of_the_environment():
    acting = policy(noise_std=0.5)
    acting.load_snapshot(snapshot([np.arctanh(0.5), -np.arctanh(0.25)]))
    action = acting.act(OBS, explore=False)
    np.testing.assert_allclose(action, [[4.0, -0.75]], rtol=1e-6)
    assert action.dtype == np.float32
    assert same(acting.act(OBS, explore=False), action)


def test_without_noise_it_explores_as_it_acts():
    acting = policy()
    assert same(acting.act(OBS, explore=True), acting.act(OBS, explore=False))


@pytest.mark.parametrize(("constant", "std"), [(None, 0.1), (0.25, 0.25), (0.0, 0.0)])
def test_gaussian_noise_has_its_deviation_and_no_memory(constant: float | None, std: float):
    noise = noise_of(policy(constant, noise_std=0.1), 4_000, rows=2).reshape(4_000, 4)
    assert noise.std(axis=0) == pytest.approx(std, rel=0.05, abs=1e-6)
    assert noise.mean(axis=0) == pytest.approx(0, abs=4 * std / 4_000**0.5 + 1e-6)
    if std > 0:
        assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.08
        assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.08


def test_ornstein_uhlenbeck_noise_lasts_into_the_next_steps():
    """x' = 0.85 x + 0.1 n: of one step 0.85 is left after the next, and in the long run the
    deviation is 0.1 / sqrt(1 - 0.85^2) = 0.1898."""
    noise = noise_of(policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1), 20_000, rows=2)
    first = noise[:, 0, 0]
    assert noise[100:].std() == pytest.approx(0.1898, rel=0.03)
    assert np.corrcoef(first[:-1], first[1:])[0, 1] == pytest.approx(0.85, abs=0.02)
    steps = noise[1:] - 0.85 * noise[:-1]
    assert steps.std() == pytest.approx(0.1, rel=0.03)
    assert abs(np.corrcoef(first, noise[:, 1, 0])[0, 1]) < 0.1  # each environment has its own


def test_it_begins_at_no_noise():
    """The first step is drawn alone: of many actors its deviation is noise_std."""
    firsts = [
        noise_of(policy(seed=seed, noise=Noise.ornstein_uhlenbeck, noise_std=0.1), 1)
        for seed in range(500)
    ]
    assert np.std(firsts) == pytest.approx(0.1, rel=0.1)


def test_no_action_leaves_the_bounds():
    acting = policy(3.0)
    taken = np.concatenate([acting.act(OBS, explore=True) for _ in range(500)])
    assert taken.min(axis=0) == pytest.approx([1, -3])
    assert taken.max(axis=0) == pytest.approx([5, 3])


def test_in_warm_up_every_action_is_taken_equally_often():
    acting = policy(0.0)
    acting.load_snapshot(snapshot([9.0, 9.0], warm_up=True))
    obs = np.ones((4_000, 1), np.float32)
    taken = acting.act(obs, explore=True)
    assert taken.mean(axis=0) == pytest.approx([3, 0], abs=0.1)
    assert taken.std(axis=0) == pytest.approx([4 / 12**0.5, 6 / 12**0.5], rel=0.03)
    np.testing.assert_allclose(acting.act(OBS, explore=False), [[5, 3]], rtol=1e-6)


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("rows", [1, 3])
def test_a_restored_policy_explores_as_the_one_that_went_on(noise: Noise, rows: int):
    acting = policy(seed=1, noise=noise, noise_std=0.2)
    for steps in (0, 1, 20):
        for _ in range(steps):
            noise_of(acting, 1, rows)
        state = acting.state_dict()
        before = reread(state)
        restored = policy(seed=2, noise=noise, noise_std=0.2)
        noise_of(restored, 5, rows)
        restored.load_state_dict(reread(state))
        assert same(noise_of(restored, 50, rows), noise_of(acting, 50, rows))
        assert same(reread(state), before)


def test_a_policy_that_changes_its_number_of_environments_begins_its_noise_anew():
    acting = policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1)
    noise_of(acting, 30)
    assert noise_of(acting, 1, rows=400).std() == pytest.approx(0.1, rel=0.1)


def test_the_noise_of_an_environment_begins_anew_with_its_episode():
    """The same draws with and without the end of an episode: what was left of the noise is gone
    from the one environment whose episode ended, at once and from then on."""
    settings: dict[str, Any] = {"noise": Noise.ornstein_uhlenbeck, "noise_std": 0.1}
    acting, other = policy(**settings), policy(**settings)
    last = noise_of(acting, 30, rows=3)[-1]
    assert same(noise_of(other, 30, rows=3)[-1], last)
    acting.forget([1])
    found, expected = noise_of(acting, 5, rows=3), noise_of(other, 5, rows=3)
    assert same(found[:, [0, 2]], expected[:, [0, 2]])
    left = 0.85 ** np.arange(1, 6)[:, None] * last[1]  # [5, 2]
    assert np.abs(left).min() > 1e-3
    np.testing.assert_allclose(found[:, 1], expected[:, 1] - left, atol=1e-5)


def test_a_state_that_was_taken_keeps_its_noise_past_the_end_of_an_episode():
    acting = policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1)
    acting.forget(range(2))  # before the first action there is nothing to forget
    noise_of(acting, 9, rows=2)
    state = acting.state_dict()
    before = reread(state)
    acting.forget([0, 1])
    assert same(reread(state), before)
    assert not acting.state_dict()["noise"].any()


def test_the_end_of_an_episode_is_nothing_to_gaussian_noise():
    one, other = policy(noise_std=0.1), policy(noise_std=0.1)
    noise_of(one, 3)
    noise_of(other, 3)
    one.forget([0])
    assert same(noise_of(one, 9), noise_of(other, 9))
