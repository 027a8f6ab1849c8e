"""Observations and rewards that are normalised by what was sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Transitions
from border_cli.nn.saving import load_state, save_state

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
        agent.observe(rows_of(wide(make_batch(seed, 50))))
    return agent


def test_an_update_is_that_of_numbers_with_mean_0_and_deviation_1(spec, make_batch):
    """The batches of the fixture are about standard normal, and rewards have deviation 2."""
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
    policy = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    action = policy.act(batch.obs, explore=False)
    np.testing.assert_allclose(q[np.arange(200), action], q.max(1), atol=1e-5)


def test_a_snapshot_keeps_the_statistics_of_its_moment(spec, make_batch):
    agent = seen(dqn(spec, normalize_obs=True), make_batch, count=3)
    taken = agent.snapshot()
    before = taken.arrays["features.mean"].copy()
    seen(agent, make_batch, count=9)
    np.testing.assert_array_equal(taken.arrays["features.mean"], before)
    assert (agent.snapshot().arrays["features.mean"] != before).any()


def test_statistics_are_saved_with_the_model(spec, make_batch, tmp_path: Path):
    settings = {"normalize_obs": True, "normalize_reward": True}
    agent = seen(dqn(spec, **settings), make_batch)
    agent.update(wide(make_batch(1)))
    save_state(agent.state_dict(), tmp_path / "agent.pt")
    state = load_state(tmp_path / "agent.pt")
    restored, begun = dqn(spec, 2, **settings), dqn(spec, 3, **settings)
    restored.load_state_dict(state)
    begun.load_weights(state)
    obs = torch.from_numpy(wide(make_batch(2)).obs)
    for each in (restored, begun):
        assert torch.equal(each.features(obs), agent.features(obs))
    for each in (agent, restored):
        seen(each, make_batch, count=5)
    batch = wide(make_batch(3))
    assert agent.update(batch).td_error().tobytes() == restored.update(batch).td_error().tobytes()


def test_without_it_nothing_is_kept(spec, make_batch):
    agent = seen(dqn(spec), make_batch)
    assert "statistics" not in agent.state_dict()
    assert not any(name.startswith("features.") for name in agent.snapshot().arrays)
