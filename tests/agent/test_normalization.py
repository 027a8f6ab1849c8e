"""Observations and rewards that are normalised by what was sampled."""

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
from tests.support.policies import policy_of
from tests.support.spaces import pixels, reals

MIDDLE, SPREAD = np.array([100.0, -3.0, 0.0]), np.array([50.0, 0.1, 1.0])
REWARD_SPREAD = 20.0


def dqn(spec: EnvSpec, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [9], "batch_size": 8, **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def wide(batch: Batch) -> Batch:
    """The same in units that no network likes."""
    return replace(
        batch,
        obs=(MIDDLE + SPREAD * batch.obs).astype(np.float32),
        next_obs=(MIDDLE + SPREAD * batch.next_obs).astype(np.float32),
        reward=(REWARD_SPREAD * batch.reward).astype(np.float32),
    )


def rows_of(batch: Batch) -> Transitions:
    names = ("obs", "action", "reward", "discount", "next_obs")
    return Transitions(**{name: getattr(batch, name) for name in names})


def seen(agent: Dqn, make_batch, count: int = 40) -> Dqn:
    for seed in range(count):
        rows = rows_of(wide(make_batch(seed, 50)))
        agent.observe(rows)
        agent.observe_returns(Moments.of(rows.reward.astype(np.float64)))  # as if gamma were 0
    return agent


def test_an_update_is_that_of_numbers_with_mean_0_and_deviation_1(spec, make_batch):
    """The batches of the fixture are about standard normal, and returns have deviation 2."""
    normalising = seen(dqn(spec, normalize_obs=True, normalize_reward=True), make_batch)
    plain = dqn(spec)
    rows = [wide(make_batch(seed, 50)) for seed in range(40)]
    obs = np.concatenate([each.obs for each in rows]).astype(np.float64)
    reward = np.concatenate([each.reward for each in rows]).astype(np.float64)
    batch = wide(make_batch(99))

    def by_hand(values: Any) -> Any:
        return ((values - obs.mean(0)) / np.sqrt(obs.var(0) + 1e-8)).astype(np.float32)

    standardised = replace(
        batch,
        obs=by_hand(batch.obs),
        next_obs=by_hand(batch.next_obs),
        reward=(batch.reward / np.sqrt(reward.var() + 1e-8)).astype(np.float32),
    )
    found, expected = normalising.update(batch), plain.update(standardised)
    np.testing.assert_allclose(found.td_error(), expected.td_error(), rtol=1e-3, atol=1e-4)
    assert float(found.metrics["loss"]) == pytest.approx(float(expected.metrics["loss"]), rel=1e-3)


def test_actors_normalise_as_the_learner_does(spec, make_batch):
    agent = seen(dqn(spec, normalize_obs=True), make_batch)
    batch = wide(make_batch(7, 200))
    features = agent.features(torch.from_numpy(batch.obs))
    assert abs(float(features.mean())) < 0.2
    assert abs(float(features.std()) - 1) < 0.1
    with torch.no_grad():
        q = agent.online(features).numpy()
    policy = policy_of(agent)
    action = policy.act(batch.obs, explore=False)
    np.testing.assert_allclose(q[np.arange(200), action], q.max(1), atol=1e-5)


def test_without_it_nothing_is_kept(spec, make_batch):
    agent = seen(dqn(spec), make_batch)
    assert "statistics" not in agent.state_dict()
    assert not any(name.startswith("features.") for name in agent.snapshot().arrays)


@pytest.mark.parametrize("of", ["obs", "reward"])
@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("beside", [True, False])
def test_weights_learned_with_other_normalising_are_refused_by_the_name_of_the_setting(
    spec, of: str, mine: bool, beside: bool
):
    """Whether or not both have statistics, as the other of the two is as in the other run."""
    other = {"reward": "obs", "obs": "reward"}[of]
    both = {f"normalize_{other}": beside}
    new = dqn(spec, **both, **{f"normalize_{of}": mine})
    old = dqn(spec, 2, **both, **{f"normalize_{of}": not mine})
    said = rf"does not fit agent\.normalize_{of}={mine}: it has {not mine}".lower()
    with pytest.raises(CheckpointError, match=rf"the saved agent {said}"):
        new.load_weights(old.state_dict())
    with pytest.raises(CheckpointError, match=rf"the saved state {said}"):
        new.load_state_dict(old.state_dict())


MIXED = DictSpace({"speed": reals(2), "gear": DiscreteSpace(3), "keys": MultiDiscreteSpace((2, 4))})


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
    """Values of an observation are not where the encoder of updates is."""
    here, away = (dqn(replace(spec, observation=MIXED), normalize_obs=True) for _ in range(2))
    away.features.to("meta")  # a device for which there is nothing to be had
    rows = mixed_rows(30)
    for each in (here, away):
        each.observe(rows)
    columns = rows.obs["speed"].astype(np.float64)  # type: ignore[index]
    for each in (here, away):
        statistics = each.state_dict()["statistics"]
        np.testing.assert_allclose(statistics["obs.mean"][:2], columns.mean(0), rtol=1e-6)
        shares = [(rows.obs["gear"] == i).mean() for i in range(3)]  # type: ignore[index]
        np.testing.assert_allclose(statistics["obs.mean"][2:5], shares, rtol=1e-6)
    assert away.features.mean.device.type == "meta"


@pytest.mark.gpu
def test_a_gpu_normalises_as_the_cpu_does(spec):
    where = replace(spec, observation=MIXED)
    config = DqnConfig(hidden=[9], batch_size=8, normalize_obs=True, normalize_reward=True)
    rows, found = mixed_rows(30), []
    for device in ("cpu", "cuda"):
        agent = Dqn(config, spec=where, device=device, seed=1)
        agent.observe(rows)
        obs = map_array(lambda values: torch.from_numpy(values).to(device), rows.obs)  # noqa: B023
        found.append(agent.features(obs).cpu())
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    "observation",
    [
        pixels(36, 36, 3),
        DiscreteSpace(5),
    ],
)
def test_what_has_no_real_numbers_cannot_be_normalised(
    spec, observation: Space, monkeypatch: pytest.MonkeyPatch
):
    where = replace(spec, observation=observation)
    dqn(where)
    monkeypatch.setattr(torch, "Generator", None)  # nothing that draws weights is made
    with pytest.raises(ConfigError, match=r"agent\.normalize_obs must be false .*integers and pix"):
        dqn(where, normalize_obs=True)


def test_real_numbers_beside_others_are_enough(spec):
    beside = DictSpace({"screen": pixels(40, 40), "speed": reals(1)})
    assert "statistics" in dqn(replace(spec, observation=beside), normalize_obs=True).state_dict()


def divisor_of(values: Any) -> float:
    """What rewards are divided by after these running returns, which come in three parts."""
    statistics = RunningStatistics(1)
    for part in np.array_split(np.asarray(values, np.float64), 3):
        if len(part):
            moments = Moments.of(part)
            numbers = torch.tensor([[moments.mean], [moments.squares]], dtype=torch.float64)
            statistics.merge(moments.count, *numbers)
    return reward_divisor(statistics)


def test_a_stream_without_ends_is_divided_as_gymnasium_divides_it():
    plain, wrapped = (gym.make("Pendulum-v1", max_episode_steps=10_000) for _ in range(2))
    theirs = NormalizeReward(wrapped, gamma=0.9)
    theirs.return_rms = RunningMeanStd(epsilon=0.0)  # which begins with 1e-4 of a return
    rng, returns, statistics = np.random.default_rng(1), DiscountedReturns(0.9, 1), []
    for each in (plain, theirs):
        each.reset(seed=1)
    for step in range(300):
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        reward = plain.step(action)[1]
        returns.see(np.array([reward], np.float32), np.array([False]), None)
        statistics.append(returns.state_dict()["untaken"][-1])
        divided = theirs.step(action)[1]
        if step > 9:
            assert float(reward) / divisor_of(statistics) == pytest.approx(divided, rel=1e-5)
    for each in (plain, theirs):
        each.close()


@pytest.mark.parametrize(
    ("values", "divisor"),
    [
        ([1.0] * 50, 0.1),  # gamma=0, or episodes of one step
        ([-1e4] * 50, 1e3),
        ([2.0] * 100_000 + [1.0], 0.2),  # an episode that never ends, at gamma=0.5
        ([0.0] * 50, 1.0),
        ([], 1.0),
        ([1e4], 1.0),
        ([0.0] * 9_999 + [1.0], 0.01),  # sqrt(1e-4 - 1e-8)
    ],
    ids=["constant", "large", "without an end", "zeros", "none", "one", "the first"],
)
def test_returns_that_hardly_vary_blow_no_reward_up(values: list[float], divisor: float):
    assert divisor_of(values) == pytest.approx(divisor, rel=1e-4)


def test_statistics_of_unknown_kind_are_refused(spec):
    agent = dqn(spec, normalize_reward=True)
    state = agent.state_dict()
    state["statistics"]["action.count"] = torch.zeros(())
    with pytest.raises(CheckpointError, match="does not fit agent=dqn: statistics: 'action'"):
        agent.load_state_dict(state)
