"""TD3 and DDPG: delayed updates, a known value, exploration noise and invalid settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import Noise, Td3Config
from border_cli.agent.td3 import Td3
from border_cli.config.compose import compose
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError
from tests.support.continuous_env import HALF, MIDDLE, batch, counted, grid, of_every_action, spec
from tests.support.policies import policy_of
from tests.support.spaces import pixels

SMALL: dict[str, Any] = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 8}


def td3(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Td3:
    config = Td3Config(**{**SMALL, **settings})
    return Td3(config, spec=env or spec(), device="cpu", seed=seed)


def test_actor_and_targets_wait_for_their_turn():
    agent = td3(policy_delay=3)

    def bits() -> list[bytes]:
        state = agent.state_dict()
        parts = ("actor", "actor_target", "critic_target", "critic")
        return [b"".join(x.tobytes() for x in state[part].values()) for part in parts]

    for seed in range(6):
        before = bits()
        metrics = agent.update(batch(seed)).metrics
        moved = [old != new for old, new in zip(before, bits(), strict=True)]
        is_due = agent.opt_steps % 3 == 0
        assert moved == [is_due, is_due, is_due, True]
        assert ("loss_actor" in metrics) == is_due


PEAK = np.array([0.5, -0.25])  # scaled to [-1, 1]


def test_the_value_and_the_best_action_of_a_loop_are_found():
    """A single endless state with r = 1 - |a - peak|^2, so Q(peak) = 1 / (1 - 0.5)."""
    settings = {"hidden": [32, 32], "activation": "silu", "learning_rate": 3e-3, "tau": 0.05}
    agent = td3(**settings, target_noise=0.01)
    everything = of_every_action(grid(), 1 - np.square(grid() - PEAK).sum(axis=1), 0.5)
    for _ in range(1_000):
        agent.update(everything)
    with torch.no_grad():
        value = agent.critics.online(
            torch.zeros(1, 3), torch.tensor(PEAK[None], dtype=torch.float32)
        )
    np.testing.assert_allclose(value.flatten().numpy(), 2.0, atol=0.01)
    policy = policy_of(agent)
    action = (policy.act(np.zeros((1, 3), np.float32), explore=False) - MIDDLE) / HALF
    np.testing.assert_allclose(action, PEAK[None], atol=0.03)


def test_the_policy_acts_as_the_actor_does_and_crosses_to_another_process():
    agent = td3(3, activation="elu", layer_norm=True)
    for seed in range(3):
        agent.update(batch(seed))
    obs = batch(9).obs
    with torch.no_grad():
        expected = MIDDLE + HALF * np.tanh(agent.actor(torch.from_numpy(obs)).numpy())
    np.testing.assert_allclose(
        policy_of(agent).act(obs, explore=False), expected, rtol=1e-5, atol=1e-5
    )


def test_the_settings_of_noise_reach_the_policy():
    def deviation(**settings: Any) -> float:
        agent = td3(final_bound=1e-6, **settings)
        policy = policy_of(agent)
        steps = [policy.act(np.zeros((50, 3), np.float32), explore=True) for _ in range(60)]
        return float(np.std((np.stack(steps)[30:] - MIDDLE) / HALF))

    assert deviation() == pytest.approx(0.1, rel=0.05)
    assert deviation(noise_std=0.2) == pytest.approx(0.2, rel=0.05)
    assert deviation(noise=Noise.ornstein_uhlenbeck) == pytest.approx(0.19, rel=0.1)


def test_the_noise_of_targets_is_drawn_only_where_it_is_used():
    quiet, loud = td3(target_noise=0.0), td3()
    before = quiet.backend.noise.get_state()
    quiet.update(batch(0))
    loud.update(batch(0))
    assert torch.equal(quiet.backend.noise.get_state(), before)
    assert not torch.equal(loud.backend.noise.get_state(), before)


def test_each_learning_rate_applies_to_the_part_it_names():
    """Adam's first step equals the learning rate unless the gradient is tiny."""
    agent = td3(learning_rate=0.01, critic_learning_rate=0.002, policy_delay=1)
    parts = (agent.actor, 0.01), (agent.critics.online, 0.002)
    before = [[parameter.detach().clone() for parameter in part.parameters()] for part, _ in parts]
    agent.update(batch(0))
    for old, (part, rate) in zip(before, parts, strict=True):
        moved = zip(part.parameters(), old, strict=True)
        assert max((a - b).abs().max().item() for a, b in moved) == pytest.approx(rate, rel=1e-3)


def test_last_layers_begin_within_their_bound():
    def largest(agent: Td3) -> list[float]:
        last = [agent.actor.mlp.layers[-1].weight, agent.critics.online.mlp.weights[-1]]
        return [float(weight.detach().abs().max()) for weight in last]

    assert max(largest(td3(final_bound=3e-3))) <= 3e-3
    assert min(largest(td3(final_bound=3e-3))) > 1e-3
    assert min(largest(td3())) > 0.1


def test_the_first_critic_is_the_first_of_all_also_with_images():
    env = EnvSpec(
        id="See", observation=pixels(36, 36, 1), action=spec().action, max_episode_steps=9
    )
    agent = td3(env=env, policy_delay=1)
    rng = np.random.default_rng(0)
    rows = batch(0, 4)
    images = rng.integers(256, size=(2, 4, 36, 36, 1)).astype(np.uint8)
    agent.update(replace(rows, obs=images[0], next_obs=images[1]))
    features = agent.features(torch.from_numpy(images[0]))
    action = torch.from_numpy(rows.action) / 10
    with torch.no_grad():
        alone, together = (
            agent.first_critic(features, action),
            agent.critics.online(features, action),
        )
    torch.testing.assert_close(alone, together[:1])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"target_noise": 0.0, "target_noise_clip": 0.3},
            r"agent\.target_noise_clip needs agent\.target_noise above 0, got 0\.3",
        ),
        (
            {"noise_std": 0.0, "noise": Noise.ornstein_uhlenbeck},
            r"agent\.noise needs agent\.noise_std above 0",
        ),
    ],
)
def test_settings_of_what_is_off_are_refused(settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        Td3Config(**settings)


def test_actions_that_are_counted_are_refused():
    with pytest.raises(ConfigError, match=r"agent=td3 needs a Box .*Count-v0 has Discrete\(3\)"):
        td3(env=counted())


def test_ddpg_is_td3_with_other_values():
    agent = compose("agent=ddpg", "env.id=Pendulum-v1").agent
    assert isinstance(agent, Td3Config)
    settings = (agent.num_critics, agent.policy_delay, agent.target_noise, agent.noise)
    assert settings == (1, 1, 0.0, Noise.ornstein_uhlenbeck)
