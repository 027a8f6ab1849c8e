"""Three states in a row: action 1 moves on and ends behind the last with reward 1, action 0 stays.

With discount 0.9 the last state is worth 1, the one before 0.9 and the first 0.81.
"""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.numpy_mlp import NumpyMlp

CHAIN = EnvSpec(
    id="Chain", observation=DiscreteSpace(3), action=DiscreteSpace(2), max_episode_steps=None
)
EVERYTHING = Batch(
    obs=np.array([0, 0, 1, 1, 2, 2]),
    action=np.array([0, 1, 0, 1, 0, 1]),
    reward=np.array([0, 0, 0, 0, 0, 1], np.float32),
    discount=np.array([0.9, 0.9, 0.9, 0.9, 0.9, 0], np.float32),
    next_obs=np.array([0, 1, 1, 2, 2, 2]),
    weight=np.ones(6, np.float32),
    index=np.arange(6),
)
KNOWN = [[0.729, 0.81], [0.81, 0.9], [0.9, 1.0]]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("target_interval", "tau"), [(20, 1.0), (1, 0.05)])
def test_the_values_of_a_chain_are_found(double: bool, target_interval: int, tau: float):
    config = DqnConfig(
        hidden=[32],
        learning_rate=0.01,
        double=double,
        target_interval=target_interval,
        tau=tau,
    )
    agent = Dqn(config, spec=CHAIN, device="cpu", seed=0)
    for _ in range(1_000):
        agent.update(EVERYTHING)
    q = NumpyMlp(agent.snapshot().arrays, prefix="mlp.")(np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(q, KNOWN, atol=0.01)

    policy = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    assert policy.act(np.arange(3), explore=False).tolist() == [1, 1, 1]
