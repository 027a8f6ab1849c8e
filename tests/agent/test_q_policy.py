"""What an actor does with the values it is sent."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from networks import q_network

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.policies import QPolicy
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import BoxSpace
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork

ONE_NUMBER = BoxSpace(shape=(1,), dtype="float32", low=np.zeros(1), high=np.ones(1))
LINEAR = partial(NumpyNetwork, Architecture(ONE_NUMBER, hidden=()))
OBS = np.ones((4_000, 1), np.float32)  # shares are then within 0.04


def snapshot(q: list[float], env_steps: int = 0, warm_up: bool = False) -> Snapshot:
    """Weights with these values for every observation."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((2, 1), np.float32),
        "network.mlp.layers.0.bias": np.array(q, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=env_steps, warm_up=warm_up, arrays=arrays)


def policy(constant: float | None = None, seed: int = 0, **settings: Any) -> QPolicy:
    rng = np.random.default_rng(seed)
    return QPolicy(DqnConfig(**settings), rng, constant, network=LINEAR, num_actions=2)


def share_of_1(acting: QPolicy, newest: Snapshot) -> float:
    acting.load_snapshot(newest)
    return float(acting.act(OBS, explore=True).mean())


def test_without_exploration_it_takes_the_best_action_always():
    acting = policy(epsilon_final=1.0)
    for warm_up in (False, True):
        acting.load_snapshot(snapshot([0, 1], warm_up=warm_up))
        assert acting.act(OBS, explore=False).all()
    acting.load_snapshot(snapshot([1, 0]))
    assert not acting.act(OBS, explore=False).any()


@pytest.mark.parametrize("exploration", ["epsilon_greedy", "softmax"])
@pytest.mark.parametrize("constant", [None, 0.0])
def test_in_warm_up_every_action_is_taken_equally_often(exploration, constant):
    settings = {"temperature": 0.01} if exploration == "softmax" else {}
    acting = policy(constant, exploration=exploration, epsilon_start=0.0, **settings)
    newest = snapshot([0, 9], warm_up=True)
    assert share_of_1(acting, newest) == pytest.approx(0.5, abs=0.04)
    assert share_of_1(acting, snapshot([0, 9])) == 1


def test_epsilon_follows_the_env_steps_of_the_snapshot():
    acting = policy(epsilon_start=1.0, epsilon_final=0.2, epsilon_steps=100)
    found = [share_of_1(acting, snapshot([0, 1], env_steps)) for env_steps in (0, 50, 100, 900)]
    assert found == pytest.approx([0.5, 0.7, 0.9, 0.9], abs=0.04)  # 1 - epsilon / 2


def test_a_constant_epsilon_replaces_the_schedule():
    acting = policy(0.4, epsilon_steps=100)
    for env_steps in (0, 900):
        assert share_of_1(acting, snapshot([0, 1], env_steps)) == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(("constant", "expected"), [(None, 2 / 3), (0.5, 0.8), (0.0, 1.0)])
def test_the_temperature_is_that_of_the_settings_or_the_constant(constant, expected):
    acting = policy(constant, exploration="softmax", temperature=1.0)
    assert share_of_1(acting, snapshot([0, np.log(2)])) == pytest.approx(expected, abs=0.04)


def test_a_constant_that_is_no_probability_is_refused_as_epsilon_only():
    policy(1.5, exploration="softmax")
    with pytest.raises(ConfigError, match=r"actor_manager\.exploration must be at most 1.*1\.5"):
        policy(1.5)


def test_one_seed_gives_one_sequence_of_actions():
    def actions(seed: int) -> list[int]:
        acting = policy(0.5, seed)
        acting.load_snapshot(snapshot([0, 1]))
        return [int(acting.act(OBS[:1], explore=True)[0]) for _ in range(60)]

    assert actions(1) == actions(1)
    assert actions(1) != actions(2)


def test_it_keeps_what_it_loaded_whatever_becomes_of_agent_and_snapshot(spec, make_batch):
    agent = Dqn(DqnConfig(hidden=[8], learning_rate=0.1), spec=spec, device="cpu", seed=0)
    acting = agent.policy_factory(np.random.default_rng(0))
    taken = agent.snapshot()
    arrays = {name: array.copy() for name, array in taken.arrays.items()}
    acting.load_snapshot(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays=arrays))
    obs = np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32)
    before = acting.act(obs, explore=False)
    for seed in range(20):
        agent.update(make_batch(seed))
    for array in arrays.values():
        array[:] = np.nan
    np.testing.assert_array_equal(acting.act(obs, explore=False), before)
    acting.load_snapshot(agent.snapshot())
    assert (acting.act(obs, explore=False) != before).any()


def test_the_same_weights_take_the_same_actions_in_numpy_and_in_torch(spec):
    """To float tolerance: where two values are as good as equal, either action is right."""
    obs = np.random.default_rng(2).standard_normal((500, 3)).astype(np.float32)
    for seed in range(5):
        agent = Dqn(DqnConfig(hidden=[64, 32]), spec=spec, device="cpu", seed=seed)
        acting = agent.policy_factory(np.random.default_rng(0))
        acting.load_snapshot(agent.snapshot())
        action = acting.act(obs, explore=False)
        network = q_network(spec.observation, [64, 32], spec.action.n, seed=0)
        network.load_state_dict(
            {
                name.removeprefix("network."): torch.tensor(each)
                for name, each in agent.snapshot().arrays.items()
            }
        )
        q = network(torch.from_numpy(obs)).detach().numpy()  # [500, num_actions]
        taken = q[np.arange(500), action]
        np.testing.assert_allclose(taken, q.max(axis=1), rtol=0, atol=1e-5)
        assert (action == q.argmax(axis=1)).mean() > 0.99
        alone = [int(acting.act(obs[i : i + 1], explore=False)[0]) for i in range(500)]
        np.testing.assert_allclose(q[np.arange(500), alone], q.max(axis=1), rtol=0, atol=1e-5)


def test_actions_handed_out_are_not_written_again():
    acting = policy()
    acting.load_snapshot(snapshot([0, 1]))
    first = acting.act(OBS[:2], explore=False)
    acting.load_snapshot(snapshot([1, 0]))
    acting.act(OBS[:2], explore=False)
    assert first.tolist() == [1, 1]


def test_the_factory_can_be_sent_to_another_process(spec):
    agent = Dqn(DqnConfig(hidden=[8]), spec=spec, device="cpu", seed=0)
    factory = pickle.loads(pickle.dumps(agent.policy_factory))
    acting = factory(np.random.default_rng(0), 0.0)
    acting.load_snapshot(agent.snapshot())
    assert acting.act(np.zeros((5, 3), np.float32), explore=True).shape == (5,)


def test_acting_needs_no_torch():
    code = (
        "import sys, border_cli.agent.policies, border_cli.agent.continuous_policies; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
