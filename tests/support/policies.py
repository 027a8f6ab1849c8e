"""The policy of an agent, as an actor builds it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from border_cli.core.interfaces import Agent


def policy_of(agent: Agent, seed: int = 0, constant: float | None = None, **snapshot: Any) -> Any:
    """Returns the agent's policy with its weights, built from a pickled factory."""
    policy = pickle.loads(pickle.dumps(agent.policy_factory))(np.random.default_rng(seed), constant)
    policy.load_snapshot(agent.snapshot(**snapshot))
    return policy
