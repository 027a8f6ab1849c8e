"""Normalisation of observations and rewards by running statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeReward
from gymnasium.wrappers.utils import RunningMeanStd

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.normalization import RunningStatistics, reward_divisor
from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.spaces import (
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    MultiDiscreteSpace,
    Space,
)
from border_cli.core.types import Batch, Transitions, map_array
from border_cli.errors import CheckpointError, ConfigError
from border_cli.nn.parameter_limit import parameters_within
from tests.support.libraries import both_backends
from tests.support.policies import policy_of
from tests.support.spaces import pixels, reals

MIDDLE, SPREAD = np.array([100.0, -3.0, 0.0]), np.array([50.0, 0.1, 1.0])
REWARD_SPREAD = 20.0
MIXED = DictSpace({"speed": reals(2), "gear": DiscreteSpace(3), "keys": MultiDiscreteSpace((2, 4))})


def dqn(spec: EnvSpec, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [9], "batch_size": 8, **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def rescale(batch: Batch) -> Batch:
    """Returns the same batch, badly scaled."""
    return replace(
        batch,
        obs=(MIDDLE + SPREAD * batch.obs).astype(np.float32),
        next_obs=(MIDDLE + SPREAD * batch.next_obs).astype(np.float32),
        reward=(REWARD_SPREAD * batch.reward).astype(np.float32),
    )


def to_transitions(batch: Batch) -> Transitions:
    names = ("obs", "action", "reward", "discount", "next_obs")
    return Transitions(**{name: getattr(batch, name) for name in names})


def observe_batches(agent: Dqn, make_batch, count: int = 40) -> Dqn:
    for seed in range(count):
        rows = to_transitions(rescale(make_batch(seed, 50)))
        agent.observe(rows)
        # With gamma=0, returns are rewards.
        agent.observe_returns(Moments.of(rows.reward.astype(np.float64)))
    return agent


@both_backends
def test_an_update_is_that_of_numbers_with_mean_0_and_deviation_1(spec, make_batch, backend: str):
    """The fixture's batches are roughly standard normal, with returns of deviation 2."""
    both = {"normalize_obs": True, "normalize_reward": True}
    normalising = observe_batches(dqn(spec, backend=backend, **both), make_batch)
    plain = dqn(spec, backend=backend)
    parts = [rescale(make_batch(seed, 50)) for seed in range(40)]
    obs = np.concatenate([part.obs for part in parts]).astype(np.float64)
    reward = np.concatenate([part.reward for part in parts]).astype(np.float64)
    batch = rescale(make_batch(99))

    def by_hand(values: Any) -> Any:
        return ((values - obs.mean(0)) / np.sqrt(obs.var(0) + 1e-8)).astype(np.float32)

    standardised = replace(
        batch,
        obs=by_hand(batch.obs),
        next_obs=by_hand(batch.next_obs),
        reward=(batch.reward / np.sqrt(reward.var() + 1e-8)).astype(np.float32),
    )
    update, expected_update = normalising.update(batch), plain.update(standardised)
    np.testing.assert_allclose(update.td_error(), expected_update.td_error(), rtol=1e-3, atol=1e-4)
    assert float(update.metrics["loss"]) == pytest.approx(
        float(expected_update.metrics["loss"]), rel=1e-3
    )


@both_backends
def test_actors_normalise_as_the_learner_does(spec, make_batch, backend: str):
    agent = observe_batches(dqn(spec, normalize_obs=True, backend=backend), make_batch)
    batch = rescale(make_batch(7, 200))
    features: Any = agent.features(agent.backend.tensor_obs(batch.obs))
    assert abs(float(features.mean())) < 0.2
    assert abs(float(features.std()) - 1) < 0.1
    q = np.asarray(agent.online.predict(features))
    policy = policy_of(agent)
    action = policy.act(batch.obs, explore=False)
    np.testing.assert_allclose(q[np.arange(200), action], q.max(1), atol=1e-5)


@pytest.mark.parametrize(
    ("observation", "normalises"),
    [
        (reals(3), True),
        (MIXED, True),
        (DictSpace({"x": reals(3), "image": pixels(8, 8)}), False),
        (pixels(8, 8), False),
        (DiscreteSpace(5), False),
    ],
)
def test_null_normalises_floats_unless_there_are_images(spec, observation: Space, normalises: bool):
    agent = dqn(replace(spec, observation=observation), normalize_obs=None)
    assert agent.observes == normalises
    assert ("statistics" in agent.state_dict()) == normalises


def test_without_it_nothing_is_kept(spec, make_batch):
    agent = observe_batches(dqn(spec), make_batch)
    assert "statistics" not in agent.state_dict()
    assert not any(name.startswith("features.") for name in agent.snapshot().arrays)


@pytest.mark.parametrize("of", ["obs", "reward"])
@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("beside", [True, False])
def test_weights_learned_with_other_normalising_are_refused_by_the_name_of_the_setting(
    spec, of: str, mine: bool, beside: bool
):
    """The other kind of normalisation is on in both runs or off in both."""
    other = {"reward": "obs", "obs": "reward"}[of]
    both = {f"normalize_{other}": beside}
    new = dqn(spec, **both, **{f"normalize_{of}": mine})
    old = dqn(spec, 2, **both, **{f"normalize_{of}": not mine})
    message = rf"does not fit agent\.normalize_{of}={mine}: it has {not mine}".lower()
    with pytest.raises(CheckpointError, match=rf"the saved agent {message}"):
        new.load_weights(old.state_dict())
    with pytest.raises(CheckpointError, match=rf"the saved state {message}"):
        new.load_state_dict(old.state_dict())


def mixed_rows(rows: int) -> Transitions:
    rng = np.random.default_rng(0)
    obs = {
        "speed": rng.normal(5, 2, (rows, 2)).astype(np.float32),
        "gear": rng.integers(3, size=rows),
        "keys": rng.integers([2, 4], size=(rows, 2)),
    }
    ones = np.ones(rows, np.float32)
    return Transitions(
        obs=obs, action=np.zeros(rows, int), reward=ones, discount=ones, next_obs=obs
    )


def test_statistics_stay_on_the_cpu_wherever_the_networks_are(spec):
    """Observations are arrays on the CPU, even if the learner's encoder is on another device."""
    on_cpu, on_meta = (
        dqn(replace(spec, observation=MIXED), normalize_obs=True, backend="torch") for _ in range(2)
    )
    on_meta.features.to("meta")  # the meta device holds no values
    rows = mixed_rows(30)
    for agent in (on_cpu, on_meta):
        agent.observe(rows)
    columns = rows.obs["speed"].astype(np.float64)  # type: ignore[index]
    for agent in (on_cpu, on_meta):
        statistics = agent.state_dict()["statistics"]
        np.testing.assert_allclose(statistics["obs.mean"][:2], columns.mean(0), rtol=1e-6)
        shares = [(rows.obs["gear"] == i).mean() for i in range(3)]  # type: ignore[index]
        np.testing.assert_allclose(statistics["obs.mean"][2:5], shares, rtol=1e-6)
    assert on_meta.features.mean.device.type == "meta"


@pytest.mark.gpu
def test_a_gpu_normalises_as_the_cpu_does(spec):
    mixed_spec = replace(spec, observation=MIXED)
    both = {"normalize_obs": True, "normalize_reward": True}
    config = DqnConfig(hidden=[9], batch_size=8, backend="torch", **both)
    rows, features = mixed_rows(30), []
    for device in ("cpu", "cuda"):
        agent = Dqn(config, spec=mixed_spec, device=device, seed=1)
        agent.observe(rows)
        obs = map_array(lambda values: torch.from_numpy(values).to(device), rows.obs)  # noqa: B023
        features.append(agent.features(obs).cpu())
    torch.testing.assert_close(features[1], features[0])


@pytest.mark.parametrize(
    "observation",
    [
        pixels(36, 36, 3),
        DiscreteSpace(5),
    ],
)
def test_what_has_no_real_numbers_cannot_be_normalised(spec, observation: Space):
    """The setting is refused before networks are built."""
    env_spec = replace(spec, observation=observation)
    dqn(env_spec)
    match = r"agent\.normalize_obs must be false .*integers and pix"
    with parameters_within(0), pytest.raises(ConfigError, match=match):
        dqn(env_spec, normalize_obs=True)


def test_real_numbers_beside_others_are_enough(spec):
    mixed = DictSpace({"screen": pixels(40, 40), "speed": reals(1)})
    assert "statistics" in dqn(replace(spec, observation=mixed), normalize_obs=True).state_dict()


def merged_divisor(values: Any) -> float:
    """Returns the reward divisor after these running returns, merged in three parts."""
    statistics = RunningStatistics(1)
    for part in np.array_split(np.asarray(values, np.float64), 3):
        if len(part):
            moments = Moments.of(part)
            statistics.merge(moments.count, moments.mean, moments.squares)
    return reward_divisor(statistics)


def test_a_stream_without_ends_is_divided_as_gymnasium_divides_it():
    plain, wrapped = (gym.make("Pendulum-v1", max_episode_steps=10_000) for _ in range(2))
    normalized = NormalizeReward(wrapped, gamma=0.9)
    normalized.return_rms = RunningMeanStd(epsilon=0.0)  # the default count is 1e-4
    rng, returns, statistics = np.random.default_rng(1), DiscountedReturns(0.9, 1), []
    for env in (plain, normalized):
        env.reset(seed=1)
    for step in range(300):
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        reward = plain.step(action)[1]
        returns.update(np.array([reward], np.float32), np.array([False]), None)
        statistics.append(returns.state_dict()["untaken"][-1])
        divided = normalized.step(action)[1]
        if step > 9:
            assert float(reward) / merged_divisor(statistics) == pytest.approx(divided, rel=1e-5)
    for env in (plain, normalized):
        env.close()


@pytest.mark.parametrize(
    ("values", "divisor"),
    [
        ([1.0] * 50, 0.1),  # gamma=0, or one-step episodes
        ([-1e4] * 50, 1e3),
        ([2.0] * 100_000 + [1.0], 0.2),  # an endless episode with gamma=0.5
        ([0.0] * 50, 1.0),
        ([], 1.0),
        ([1e4], 1.0),
        ([0.0] * 9_999 + [1.0], 0.01),  # sqrt(1e-4 - 1e-8)
    ],
    ids=["constant", "large", "without an end", "zeros", "none", "one", "the first"],
)
def test_rewards_are_not_blown_up_by_returns_that_hardly_vary(values: list[float], divisor: float):
    assert merged_divisor(values) == pytest.approx(divisor, rel=1e-4)


@pytest.mark.parametrize("columns", [1, 7])
def test_statistics_of_another_size_are_refused(spec, columns: int):
    agent = dqn(spec, normalize_obs=True)
    state = agent.state_dict()
    state["statistics"]["obs.mean"] = np.zeros(columns)
    match = rf"does not fit agent=dqn: statistics: .* size {columns} into shape \(3,\)"
    with pytest.raises(CheckpointError, match=match):
        agent.load_state_dict(state)


def test_statistics_of_unknown_kind_are_refused(spec):
    agent = dqn(spec, normalize_reward=True)
    state = agent.state_dict()
    state["statistics"]["action.count"] = np.zeros(())
    with pytest.raises(CheckpointError, match="does not fit agent=dqn: statistics: 'action'"):
        agent.load_state_dict(state)
