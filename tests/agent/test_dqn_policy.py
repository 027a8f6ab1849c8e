"""Acting on distributions, on dueling values and with noisy weights."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from states import reread, same

from border_cli.agent.config import DqnConfig, Exploration
from border_cli.agent.dqn import Dqn
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Snapshot

OBS = np.random.default_rng(7).standard_normal((300, 3)).astype(np.float32)
NOISY: dict[str, Any] = {"noisy": True, "exploration": Exploration.greedy}


def dqn(spec: Any, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [16, 8], **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def acting(agent: Dqn, seed: int = 0, constant: float | None = None, **snapshot: Any) -> Any:
    policy = agent.policy_factory(np.random.default_rng(seed), constant)
    policy.load_snapshot(agent.snapshot(**snapshot))
    return policy


@pytest.mark.parametrize(
    "form",
    [
        {"dueling": True},
        {"num_atoms": 7},
        {**NOISY, "dueling": True, "num_atoms": 7},
        {"dueling": True, "activation": "elu", "layer_norm": True, "normalize_obs": True},
    ],
)
def test_a_policy_takes_the_actions_of_the_torch_network(spec, form: dict[str, Any]):
    agent = dqn(spec, **form)
    action = acting(agent).act(OBS, explore=False)
    with torch.no_grad():
        outputs = agent.online(agent.features(torch.from_numpy(OBS)))
    if agent.config.categorical:
        atoms = torch.linspace(-10, 10, 7)
        outputs = (outputs.view(len(OBS), 2, 7).softmax(2) * atoms).sum(2)
    q = outputs.numpy()
    np.testing.assert_allclose(q[np.arange(len(OBS)), action], q.max(axis=1), atol=1e-4)
    assert (action == q.argmax(axis=1)).mean() > 0.98


def test_the_value_of_atoms_is_their_mean_however_large_the_logits():
    """Atoms -1, 0 and 1: half at each end is worth 0, and halves at 0 and 1 are worth 0.5."""
    config = DqnConfig(num_atoms=3, v_min=-1.0, v_max=1.0)
    one = EnvSpec(
        id="One", observation=DiscreteSpace(1), action=DiscreteSpace(2), max_episode_steps=None
    )
    agent = Dqn(config, spec=one, device="cpu", seed=0)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    logits = np.array([[0, -500, 0, -500, 200, 200]], np.float32)
    np.testing.assert_allclose(policy.values(logits), [[0, 0.5]], atol=1e-7)


def test_noisy_weights_explore_and_means_evaluate(spec):
    policy = acting(dqn(spec, noisy_std=2.0, **NOISY))
    one = np.repeat(OBS[:1], 500, axis=0)
    still = policy.act(one, explore=False)
    assert (still == still[0]).all()
    for rows in (one, one[:1]):  # every row of a call, and every call, draws anew
        taken = np.concatenate([policy.act(rows, explore=True) for _ in range(500 // len(rows))])
        assert 0.02 < taken.mean() < 0.98
    np.testing.assert_array_equal(policy.act(one, explore=False), still)


def test_noise_that_was_learned_away_explores_nothing(spec):
    agent = dqn(spec, **NOISY)
    policy = acting(agent)
    arrays = dict(agent.snapshot().arrays)
    arrays |= {name: each * 0 for name, each in arrays.items() if name.endswith("_std")}
    policy.load_snapshot(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays=arrays))
    np.testing.assert_array_equal(policy.act(OBS, explore=True), policy.act(OBS, explore=False))


def test_in_warm_up_a_noisy_policy_takes_any_action(spec):
    taken = acting(dqn(spec, **NOISY), warm_up=True).act(np.repeat(OBS, 10, axis=0), explore=True)
    assert taken.mean() == pytest.approx(0.5, abs=0.04)


def test_epsilon_and_noise_can_explore_together(spec):
    policy = acting(dqn(spec, noisy=True, noisy_std=1e-6, epsilon_steps=1), env_steps=5)
    off = policy.act(OBS, explore=True) != policy.act(OBS, explore=False)
    assert 0 < off.mean() < 0.1  # epsilon_final / 2


def test_a_constant_of_an_actor_is_refused_where_there_is_nothing_to_replace(spec):
    with pytest.raises(ConfigError, match=r"actor_manager\.exploration must be null.*got 0\.4"):
        acting(dqn(spec, **NOISY), constant=0.4)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_restored_noisy_policy_explores_as_the_one_that_went_on(spec, rows: int):
    agent = dqn(spec, noisy_std=2.0, dueling=True, num_atoms=5, **NOISY)
    policy, restored = acting(agent, seed=1), acting(agent, seed=2)

    def act(which: Any, steps: int) -> list[Any]:
        return [which.act(OBS[i : i + rows], explore=True) for i in range(steps)]

    for steps in (0, 1, 20):
        act(policy, steps)
        restored.load_state_dict(reread(policy.state_dict()))
        expected = act(policy, 100)
        assert same(act(restored, 100), expected)
        assert len(np.unique(np.concatenate(expected))) == 2


def test_the_factory_can_be_sent_to_another_process(spec):
    agent = dqn(spec, dueling=True, num_atoms=5, **NOISY)
    policy = pickle.loads(pickle.dumps(agent.policy_factory))(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    assert policy.act(OBS, explore=True).shape == (300,)


def test_acting_needs_no_torch():
    code = "import sys, border_cli.nn.numpy_network; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
