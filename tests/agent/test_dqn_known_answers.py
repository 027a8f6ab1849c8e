"""All variants of the deep Q-network find values that are known exactly.

The chain has three states. Action 0 stays; action 1 moves on, and in the last state it ends the
episode with reward 1. With discount 0.9 the states are worth 0.81, 0.9 and 1.

The risky choice: in state 0, action 0 ends the episode with reward 1, and action 1 leads to state
1, where any action ends the episode with reward 0 or 3, equally likely.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.agent.config import DqnConfig, Loss
from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from tests.support.case_sampling import chosen, sampled
from tests.support.policies import policy_of
from tests.support.quantile_agents import CHAIN_VALUES, LINKS, batch_of, spec_of

RISKY = batch_of(
    *((0, 0, 1, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 0.9, 1), (0, 1, 0, 0.9, 1)),
    *((1, 0, 0, 0, 1), (1, 0, 3, 0, 1), (1, 1, 0, 0, 1), (1, 1, 3, 0, 1)),
)
PROBLEMS = {
    "chain": (LINKS, CHAIN_VALUES),
    "risky": (RISKY, [[1, 0.9 * 1.5], [1.5, 1.5]]),
}
# Gradients are mostly weight noise: with a small epsilon Adam would keep its full step size.
NOISY = {"noisy": True, "noisy_std": 0.05, "adam_epsilon": 0.1}
ATOMS = {"num_atoms": 31, "v_min": 0.0, "v_max": 3.0}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {"double": False},
    "double": {"double": True},
    "soft target": {"tau": 0.05, "target_interval": 1},
    "dueling": {"dueling": True, "double": True},
    "noisy": {"double": True, **NOISY},
    "atoms": {"double": False, **ATOMS},
    "dueling atoms": {"dueling": True, "double": True, **ATOMS},
    "dueling, torch": {"dueling": True, "double": True, "backend": "torch"},
    "all": {"dueling": True, "double": True, **NOISY, **ATOMS},
}


def values(agent: Dqn, states: int) -> np.ndarray:
    """Returns the values by which a policy acts without exploration."""
    policy = policy_of(agent)
    return policy.choice.values(policy.network(np.arange(states)))


@pytest.mark.parametrize("form", chosen(FORMS.keys(), ["all", "dueling atoms"]))
@pytest.mark.parametrize("problem", sampled([*PROBLEMS], every=2))
def test_known_values_are_found(problem: str, form: str):
    rows, expected = PROBLEMS[problem]
    quick = {"hidden": [32], "learning_rate": 0.01, "target_interval": 20, "tau": 1.0}
    settings = quick | FORMS[form]
    # The mean minimises the Huber loss only if all errors are below 1.
    loss = Loss.huber if problem == "chain" or "num_atoms" in settings else Loss.mse
    agent = Dqn(DqnConfig(loss=loss, **settings), spec=spec_of(len(expected)), device="cpu", seed=0)
    for _ in range(1_500 if agent.config.noisy else 1_000):
        agent.update(rows)
    np.testing.assert_allclose(values(agent, len(expected)), expected, atol=0.01)

    policy = policy_of(agent)
    best = np.argmax(expected, axis=1)
    assert policy.act(np.arange(1), explore=False)[0] == best[0]


def test_a_conservative_agent_lowers_values_of_actions_missing_from_the_data():
    """The data has one state and one of three actions, with reward 1. Minimising
    (Q_0 - 1)^2 / 2 + 0.5 (logsumexp Q - Q_0) lowers the other values without bound."""
    rows = batch_of((0, 0, 1, 0, 0))
    settings = {"hidden": [8], "learning_rate": 0.01}
    single_state = EnvSpec(
        id="One", observation=DiscreteSpace(1), action=DiscreteSpace(3), max_episode_steps=None
    )
    learned = {}
    for weight in (0.0, 0.5):
        config = DqnConfig(conservative_weight=weight, **settings)
        agent = Dqn(config, spec=single_state, device="cpu", seed=3)
        for _ in range(500):
            update = agent.update(rows)
        assert ("conservative_gap" in update.metrics) == (weight > 0)
        learned[weight] = values(agent, 1)[0]
    assert learned[0.0][0] == pytest.approx(1, abs=0.01)
    assert learned[0.5][0] == pytest.approx(1, abs=0.1)
    assert learned[0.5][1:].max() < min(learned[0.0][1:].min(), -1)
