"""The random baseline, which counts updates and stores nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.agent.config import RandomConfig
from border_cli.core.interfaces import Agent
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError, RunFailed
from border_cli.registry import AGENTS
from tests.support.policies import policy_of


def random_agent(spec: EnvSpec, device: str = "cpu") -> Agent:
    agent: Agent = AGENTS.build(RandomConfig(), spec=spec, device=device, seed=0)
    return agent


def test_an_update_only_counts(spec, make_batch):
    agent = random_agent(spec)
    update = agent.update(make_batch(0, rows=6))
    assert agent.opt_steps == 1
    assert dict(update.metrics) == {}
    with pytest.raises(RunFailed, match=r"returned no TD errors .*gives_priorities = False"):
        update.td_error()


def test_a_snapshot_says_how_far_the_run_is_and_holds_no_weights(spec, make_batch):
    agent = random_agent(spec)
    agent.update(make_batch(0))
    snapshot = agent.snapshot(env_steps=5, warm_up=True)
    assert (snapshot.opt_steps, snapshot.env_steps, snapshot.warm_up) == (1, 5, True)
    assert not snapshot.arrays


def test_the_count_is_restored(spec, make_batch):
    agent, restored = random_agent(spec), random_agent(spec)
    agent.update(make_batch(0))
    restored.load_state_dict(agent.state_dict())
    assert restored.opt_steps == 1


def test_its_policy_acts_at_random_in_evaluation_too(spec):
    agent = random_agent(spec)
    policy = policy_of(agent, constant=0.1)
    action = policy.act(np.zeros((2_000, 3)), explore=False)
    assert action.mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_refused_as_with_any_agent(spec):
    assert random_agent(spec, "auto").device_name == "cpu"
    with pytest.raises(ConfigError, match="device=cuda"):
        random_agent(spec, "cuda")
