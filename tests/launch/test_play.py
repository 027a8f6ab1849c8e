"""Episodes that are played to be kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from border_cli.agent.action_space import bounded_actions
from border_cli.agent.config import Noise
from border_cli.agent.continuous_policies import DeterministicPolicy
from border_cli.core.stop import StopFlag
from border_cli.core.types import Snapshot
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.launch.play import play_round
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork


def test_noise_that_lasts_begins_at_0_in_every_round():
    """x' = 0.85 x + 0.1 n, by hand from the same draws; the network puts out 0."""
    factory = GymEnvFactory(GymConfig(id="Pendulum-v1", num_envs=2, max_episode_steps=6))
    policy = DeterministicPolicy(
        np.random.default_rng(3),
        network=partial(NumpyNetwork, Architecture(factory.spec.observation, hidden=())),
        bounds=bounded_actions(factory.spec, "td3"),
        noise=Noise.ornstein_uhlenbeck,
        noise_std=0.1,
    )
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((1, 3), np.float32),
        "network.mlp.layers.0.bias": np.zeros(1, np.float32),
    }
    policy.load_snapshot(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays=arrays))
    env, stop = factory.make(training=False), StopFlag()
    draws = np.random.default_rng(3)
    for seed in range(3):
        played = play_round(env, policy, seed, stop, limit=6, explore=True)
        noise = np.zeros((2, 1))
        for step in range(6):
            noise = 0.85 * noise + 0.1 * draws.standard_normal((2, 1), dtype=np.float32)
            taken = np.stack([each.action[step] for each in played])
            np.testing.assert_allclose(taken, 2 * noise, rtol=1e-5)  # torques are up to 2
    env.close()
