"""Agents train, evaluate and resume with a user's network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from border_cli import compose, load_policy, resume, train
from tests.support import commands
from tests.support.case_sampling import thinned

NETS = """
from torch import nn

from border_cli.registry import NETWORKS


class Mine(nn.Module):
    def __init__(self, space, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], width), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


NETWORKS.register("mine", Mine)
"""
DISCRETE = ("dqn", "rainbow", "discrete_cql", "qrdqn", "iqn", "discrete_sac", "bc", "awac", "iql")
BOX = ("sac", "droq", "tqc", "td3", "cql", "td3_bc", "awac", "iql", "bc")
SMALL = (
    *("agent.batch_size=16", "agent.hidden=[16]", "trainer.warmup_period=50"),
    *("replay_buffer.capacity=500", "env.max_episode_steps=50", "evaluator.num_episodes=2"),
    *("trainer.record_interval=10", "recorder=[jsonl]", "~tuned", "device=cpu"),
)
OWN = (
    *("imports=[runs_nets]", "agent.network=mine", "agent.network_kwargs.width=4"),
    *("agent.optimizer=AdamW", "agent.optimizer_kwargs.weight_decay=0.01"),
)


@pytest.fixture(autouse=True)
def network(own_modules: None, write: Callable[[str, str], Path]) -> None:
    """Writes a module with a network into the current folder."""
    assert own_modules is None
    write("runs_nets.py", NETS)


def train_briefly(agent: str, env: str, actors: str, *more: str) -> None:
    typed = [f"agent={agent}", f"env={env}", actors, *SMALL, *OWN, "run_dir=run", *more]
    config = compose(*typed, "trainer.max_opt_steps=10", "trainer.save_interval=10")
    assert train(config).trainer_stats.opt_steps == 10


@pytest.mark.parametrize(
    ("agent", "env"),
    [
        *(
            pytest.param(agent, "cartpole", id=f"{agent}, Discrete")
            for agent in thinned(DISCRETE, 4)
        ),
        *(pytest.param(agent, "pendulum", id=f"{agent}, Box") for agent in thinned(BOX, 4)),
    ],
)
@pytest.mark.slow
def test_agents_take_a_users_network_and_an_optimizer_of_torch(agent: str, env: str) -> None:
    train_briefly(agent, env, "trainer=sync")


@pytest.mark.slow
@pytest.mark.parametrize("actors", ["actor_manager=thread", "actor_manager=process"])
def test_its_runs_evaluate_go_on_and_give_their_policy(actors: str) -> None:
    train_briefly("dqn", "cartpole", actors)
    assert commands.eval_status("run", "episodes=1") == 0
    policy = load_policy("run")
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)
    assert resume("run", "trainer.max_opt_steps=20").trainer_stats.opt_steps == 20


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_bit() -> None:
    train_briefly("dqn", "cartpole", "trainer=sync")
    halves = resume("run", "trainer.max_opt_steps=20").agent.state_dict()
    typed = ["agent=dqn", "env=cartpole", "trainer=sync", *SMALL, *OWN, "run_dir=whole"]
    whole = train(compose(*typed, "trainer.max_opt_steps=20")).agent.state_dict()
    np.testing.assert_equal(halves["online"], whole["online"])
