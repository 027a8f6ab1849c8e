"""Policies for continuous actions: samples, means, exploration noise and bounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.action_space import ActionBounds, action_bounds
from border_cli.agent.awac import Awac
from border_cli.agent.config import AwacConfig, Noise
from border_cli.agent.continuous_policies import (
    ClippedGaussianPolicy,
    DeterministicPolicy,
    GaussianPolicy,
)
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.distributions import split
from border_cli.nn.numpy_network import NumpyNetwork
from tests.support.continuous_env import HALF, LOW, MIDDLE, batch, spec
from tests.support.policies import policy_of
from tests.support.saved_states import reread, same
from tests.support.soft_agents import KINDS, agent_of
from tests.support.spaces import numbers

OBS = np.ones((20_000, 1), np.float32)


def bounds() -> ActionBounds:
    result = action_bounds(spec().action)
    assert result is not None
    return result


def policy(seed: int = 0, exploration: float | None = None) -> GaussianPolicy:
    architecture = Architecture(numbers(1), hidden=())
    rng = np.random.default_rng(seed)
    return GaussianPolicy(
        rng, exploration, network=partial(NumpyNetwork, architecture), bounds=bounds()
    )


def snapshot(
    outputs: list[float], warm_up: bool = False, log_std: tuple[float, ...] = ()
) -> Snapshot:
    """Builds a snapshot of a network with these outputs for every observation."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((len(outputs), 1), np.float32),
        "network.mlp.layers.0.bias": np.array(outputs, np.float32),
        "network.log_std": np.array(log_std, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


def test_evaluation_takes_tanh_of_the_mean_within_the_bounds():
    acting = policy()
    for warm_up in (False, True):
        acting.load_snapshot(snapshot([0.5, -0.2, 1, 1], warm_up))
        expected = MIDDLE + HALF * np.tanh([0.5, -0.2])
        np.testing.assert_allclose(acting.act(OBS[:3], explore=False), [expected] * 3, rtol=1e-6)
    acting.load_snapshot(snapshot([-50, 50, 1, 1]))
    np.testing.assert_array_equal(acting.act(OBS[:1], explore=False), [[LOW[0], 6]])


def test_exploring_draws_from_the_distribution():
    acting = policy()
    acting.load_snapshot(snapshot([0.5, -0.2, np.log(0.3), np.log(0.8)]))
    action = acting.act(OBS, explore=True)
    assert action.dtype == np.float32
    before = np.arctanh(np.clip((action.astype(np.float64) - MIDDLE) / HALF, -0.999999, 0.999999))
    np.testing.assert_allclose(before.mean(axis=0), [0.5, -0.2], atol=0.02)
    np.testing.assert_allclose(before.std(axis=0), [0.3, 0.8], atol=0.02)
    assert abs(np.corrcoef(before.T)[0, 1]) < 0.03


def test_a_deviation_is_exponentiated_once_and_has_its_range():
    acting = policy()
    for log_std, std in ((2.0, np.exp(2)), (9.0, np.exp(2)), (-50.0, np.exp(-20))):
        acting.load_snapshot(snapshot([0, 0, log_std, log_std]))
        action = (acting.act(OBS, explore=True) - MIDDLE) / HALF
        inner = np.abs(np.arctanh(np.clip(action, -0.999, 0.999))) < 0.5
        # The probability that a Gaussian is within 0.5 of its mean.
        expected = torch.erf(torch.tensor(0.5 / std / 2**0.5)).item()
        assert inner.mean() == pytest.approx(expected, abs=0.01)


def test_in_warm_up_every_action_is_taken_equally_often():
    acting = policy()
    acting.load_snapshot(snapshot([9, 9, -9, -9], warm_up=True))
    action = (acting.act(OBS, explore=True) - MIDDLE) / HALF
    quartiles = np.quantile(action, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quartiles, [-1, -0.5, 0, 0.5, 1], atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings", [{}, {"activation": "silu", "layer_norm": True, "critic_layer_norm": False}]
)
def test_the_policy_acts_as_the_actor_of_the_agent(kind: str, settings: dict[str, Any]):
    agent = agent_of(kind, **settings)
    for seed in range(5):
        agent.update(batch(seed))
    acting, obs = policy_of(agent), batch(9).obs
    with torch.no_grad():
        mean, log_std = split(agent.actor(torch.from_numpy(obs)))
    expected = MIDDLE + HALF * torch.tanh(mean).numpy()
    np.testing.assert_allclose(acting.act(obs, explore=False), expected, rtol=1e-5, atol=1e-5)
    noise = np.random.default_rng(0).standard_normal((8, 2), np.float32)
    expected = MIDDLE + HALF * np.tanh(mean.numpy() + log_std.exp().numpy() * noise)
    np.testing.assert_allclose(acting.act(obs, explore=True), expected, rtol=1e-5, atol=1e-5)


def clipped_policy(seed: int = 0, exploration: float | None = None) -> ClippedGaussianPolicy:
    return ClippedGaussianPolicy(
        np.random.default_rng(seed),
        exploration,
        network=partial(NumpyNetwork, Architecture(numbers(1), hidden=())),
        bounds=bounds(),
    )


sampling = pytest.mark.parametrize("make", [policy, clipped_policy], ids=["gaussian", "clipped"])


@sampling
def test_a_number_for_an_actor_scales_its_deviations(make: Any):
    def noise(exploration: float | None) -> Any:
        acting = make(exploration=exploration)
        size = 4 if make is policy else 2  # tanh is nearly linear for deviations of 0.001
        weights = [0, 0, np.log(1e-3), np.log(1e-3)][:size]
        acting.load_snapshot(snapshot(weights, log_std=(np.log(1e-3),) * 2))
        return acting.act(OBS[:100], explore=True) - MIDDLE

    assert same(noise(1), noise(None))
    assert not noise(0).any()
    np.testing.assert_allclose(noise(0.5), 0.5 * noise(None), rtol=0.01, atol=1e-6)


@sampling
@pytest.mark.parametrize("warm_up", [False, True])
def test_a_restored_policy_explores_as_the_one_that_went_on(make: Any, warm_up: bool):
    acting, restored = make(1), make(2)
    outputs = [0.1, 0.2, 0.0, 0.0] if make is policy else [0.1, 0.2]
    for gaussian in (acting, restored):
        gaussian.load_snapshot(snapshot(outputs, warm_up, log_std=(0.0, 0.0)))
        gaussian.act(OBS[:3], explore=True)
    restored.load_state_dict(reread(acting.state_dict()))
    actions = [
        [gaussian.act(OBS[:3], explore=True) for _ in range(9)] for gaussian in (acting, restored)
    ]
    assert same(*actions)


def test_numpy_acts_as_torch_computes():
    agent = Awac(AwacConfig(hidden=[8, 6], batch_size=8), spec=spec(), device="cpu", seed=1)
    for seed in range(5):
        agent.update(batch(seed))
    policy, obs = policy_of(agent), batch(7).obs
    with torch.no_grad():
        mean = agent.actor(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(policy.act(obs, explore=False), MIDDLE + HALF * mean, rtol=1e-5)
    assert policy.act(obs, explore=False).dtype == np.float32


def test_samples_have_the_learned_mean_and_deviation_in_the_units_of_the_environment():
    acting = clipped_policy()
    acting.load_snapshot(snapshot([0.2, -0.4], log_std=(np.log(0.1), np.log(0.05))))
    action = acting.act(OBS, explore=True)
    np.testing.assert_allclose(action.mean(0), MIDDLE + HALF * np.tanh([0.2, -0.4]), atol=0.01)
    np.testing.assert_allclose(action.std(0), HALF * [0.1, 0.05], rtol=0.03)


def test_samples_beyond_the_bounds_are_the_bounds():
    acting = clipped_policy()
    acting.load_snapshot(snapshot([-4.0, 0.0], log_std=(0.0, -5.0)))
    action = acting.act(OBS, explore=True)
    assert (action[:, 0] == LOW[0]).mean() == pytest.approx(0.5, abs=0.02)
    assert (action >= LOW).all()


def test_in_warm_up_any_action_is_as_likely():
    acting = clipped_policy()
    acting.load_snapshot(snapshot([3.0, 3.0], log_std=(-5.0, -5.0), warm_up=True))
    action = acting.act(OBS, explore=True)
    np.testing.assert_allclose(action.mean(0), MIDDLE, atol=0.05)


def deterministic_policy(
    constant: float | None = None, seed: int = 0, **settings: Any
) -> DeterministicPolicy:
    acting = DeterministicPolicy(
        np.random.default_rng(seed),
        constant,
        network=partial(NumpyNetwork, Architecture(numbers(1), hidden=())),
        bounds=bounds(),
        **settings,
    )
    acting.load_snapshot(snapshot([0.0, 0.0]))
    return acting


def sample_noise(acting: DeterministicPolicy, steps: int, rows: int = 1) -> Any:
    """Returns the noise added to actions, in units of -1 to 1. [steps, rows, 2]"""
    obs = np.ones((rows, 1), np.float32)
    actions = np.stack([acting.act(obs, explore=True) for _ in range(steps)])
    return (actions - bounds().middle) / bounds().half


def test_without_exploration_it_is_tanh_in_the_units_of_the_environment():
    acting = deterministic_policy(noise_std=0.5)
    acting.load_snapshot(snapshot([np.arctanh(0.5), -np.arctanh(0.25)]))
    action = acting.act(OBS[:1], explore=False)
    np.testing.assert_allclose(action, [[1.0, 2.25]], rtol=1e-6)
    assert action.dtype == np.float32
    assert same(acting.act(OBS[:1], explore=False), action)


@pytest.mark.parametrize(("constant", "std"), [(None, 0.1), (0.25, 0.25), (0.0, 0.0)])
def test_gaussian_noise_has_its_deviation_and_no_memory(constant: float | None, std: float):
    noise = sample_noise(deterministic_policy(constant, noise_std=0.1), 4_000, rows=2).reshape(
        4_000, 4
    )
    assert noise.std(axis=0) == pytest.approx(std, rel=0.05, abs=1e-6)
    assert noise.mean(axis=0) == pytest.approx(0, abs=4 * std / 4_000**0.5 + 1e-6)
    if std > 0:
        assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.08
        assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.08


def test_ornstein_uhlenbeck_noise_lasts_into_the_next_steps():
    """x' = 0.85 x + 0.1 n: consecutive steps have correlation 0.85, and the stationary deviation
    is 0.1 / sqrt(1 - 0.85^2) = 0.1898."""
    noise = sample_noise(
        deterministic_policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1), 20_000, rows=2
    )
    first = noise[:, 0, 0]
    assert noise[100:].std() == pytest.approx(0.1898, rel=0.03)
    assert np.corrcoef(first[:-1], first[1:])[0, 1] == pytest.approx(0.85, abs=0.02)
    steps = noise[1:] - 0.85 * noise[:-1]
    assert steps.std() == pytest.approx(0.1, rel=0.03)
    assert abs(np.corrcoef(first, noise[:, 1, 0])[0, 1]) < 0.1  # independent across environments


def test_settings_of_an_actor_replace_the_noise_of_the_agent():
    actor_settings: Any = {"noise": "ornstein_uhlenbeck", "noise_std": 0.1}
    noise = sample_noise(deterministic_policy(actor_settings, noise_std=0.5), 50)
    assert same(
        noise, sample_noise(deterministic_policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1), 50)
    )


def test_ornstein_uhlenbeck_noise_starts_at_zero():
    """The first step is a single draw, so its deviation across many actors is noise_std."""
    firsts = [
        sample_noise(
            deterministic_policy(seed=seed, noise=Noise.ornstein_uhlenbeck, noise_std=0.1), 1
        )
        for seed in range(500)
    ]
    assert np.std(firsts) == pytest.approx(0.1, rel=0.1)


def test_no_action_leaves_the_bounds():
    acting = deterministic_policy(3.0)
    actions = np.concatenate([acting.act(OBS[:1], explore=True) for _ in range(500)])
    assert actions.min(axis=0) == pytest.approx([-2, 0])
    assert actions.max(axis=0) == pytest.approx([2, 6])


def test_in_warm_up_a_deterministic_policy_takes_every_action_equally_often():
    acting = deterministic_policy(0.0)
    acting.load_snapshot(snapshot([9.0, 9.0], warm_up=True))
    actions = acting.act(OBS, explore=True)
    assert actions.mean(axis=0) == pytest.approx([0, 3], abs=0.1)
    assert actions.std(axis=0) == pytest.approx([4 / 12**0.5, 6 / 12**0.5], rel=0.03)
    np.testing.assert_allclose(acting.act(OBS[:1], explore=False), [[2, 6]], rtol=1e-6)


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("rows", [1, 3])
def test_a_restored_deterministic_policy_explores_as_the_one_that_went_on(noise: Noise, rows: int):
    acting = deterministic_policy(seed=1, noise=noise, noise_std=0.2)
    for steps in (0, 1, 20):
        for _ in range(steps):
            sample_noise(acting, 1, rows)
        state = acting.state_dict()
        before = reread(state)
        restored = deterministic_policy(seed=2, noise=noise, noise_std=0.2)
        sample_noise(restored, 5, rows)
        restored.load_state_dict(reread(state))
        assert same(sample_noise(restored, 50, rows), sample_noise(acting, 50, rows))
        assert same(reread(state), before)


def test_a_policy_that_changes_its_number_of_environments_begins_its_noise_anew():
    acting = deterministic_policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1)
    sample_noise(acting, 30)
    assert sample_noise(acting, 1, rows=400).std() == pytest.approx(0.1, rel=0.1)


def test_the_noise_of_an_environment_begins_anew_with_its_episode():
    """Both policies use the same draws. When an episode ends, its environment loses the remaining
    noise, in the next step and all later ones. The other environments keep theirs."""
    settings: dict[str, Any] = {"noise": Noise.ornstein_uhlenbeck, "noise_std": 0.1}
    acting, other = deterministic_policy(**settings), deterministic_policy(**settings)
    last = sample_noise(acting, 30, rows=3)[-1]
    assert same(sample_noise(other, 30, rows=3)[-1], last)
    acting.forget([1])
    noise, expected = sample_noise(acting, 5, rows=3), sample_noise(other, 5, rows=3)
    assert same(noise[:, [0, 2]], expected[:, [0, 2]])
    remainder = 0.85 ** np.arange(1, 6)[:, None] * last[1]  # [5, 2]
    assert np.abs(remainder).min() > 1e-3
    np.testing.assert_allclose(noise[:, 1], expected[:, 1] - remainder, atol=1e-5)


def test_a_state_that_was_taken_keeps_its_noise_past_the_end_of_an_episode():
    acting = deterministic_policy(noise=Noise.ornstein_uhlenbeck, noise_std=0.1)
    acting.forget(range(2))  # has no effect before the first action
    sample_noise(acting, 9, rows=2)
    state = acting.state_dict()
    before = reread(state)
    acting.forget([0, 1])
    assert same(reread(state), before)
    assert not acting.state_dict()["noise"].any()


def test_the_end_of_an_episode_does_not_change_gaussian_noise():
    policy_with_reset, other = (
        deterministic_policy(noise_std=0.1),
        deterministic_policy(noise_std=0.1),
    )
    sample_noise(policy_with_reset, 3)
    sample_noise(other, 3)
    policy_with_reset.forget([0])
    assert same(sample_noise(policy_with_reset, 9), sample_noise(other, 9))
