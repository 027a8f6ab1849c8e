"""Training with MultiDiscrete and MultiBinary actions reaches a known best score."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import levers
import pytest

from border_cli import Result, compose, train
from border_cli.errors import ConfigError
from tests.support.case_sampling import thinned, weekly
from tests.support.commands import record_status
from tests.support.datasets import datasets_in

pytestmark = pytest.mark.usefixtures("folder")
SMALL = (
    *("agent.hidden=[64]", "agent.batch_size=64", "agent.learning_rate=3e-3", "agent.gamma=0.8"),
    *("trainer.eval_interval=500", "recorder=none", "evaluator.num_episodes=1"),
    *("trainer.stop_at_score=10", "trainer.stop_evals=1", "imports=[levers]", "run_dir=run"),
)
ENVS = ("Levers", "Switches")
ONLINE = ("trainer=sync", "trainer.warmup_period=500", "agent.tau=0.02")


def trained(agent: str, *more: str, env: str = "Levers", updates: int = 6000) -> Result:
    chosen = (f"agent={agent}", f"env.id=border/{env}-v0", f"trainer.max_opt_steps={updates}")
    return train(compose(*chosen, *SMALL, *more))


def test_joint_actions_have_a_limit_and_factored_ones_have_none():
    with pytest.raises(ConfigError, match=r"24 of them.*agent\.max_joint_actions=23"):
        trained("dqn", *ONLINE, "agent.max_joint_actions=23")
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env"), thinned([*product(["dqn", "discrete_sac"], ENVS)], 4))
def test_joint_and_factored_actions_reach_the_best_score(agent: str, env: str):
    assert trained(agent, *ONLINE, env=env).trainer_stats.best_score == levers.BEST


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env"), thinned([*product(["ppo", "a2c"], ENVS)], 4))
def test_on_policy_agents_reach_the_best_score(agent: str, env: str):
    rollouts = ("replay_buffer.n_steps=16", "agent.batch_size=128")
    result = trained(agent, *rollouts, env=env, updates=3000)
    assert result.trainer_stats.best_score == levers.BEST


@weekly
@pytest.mark.slow
def test_offline_agents_reach_the_best_score_by_data_of_all_kinds(tmp_path: Path):
    with datasets_in(tmp_path / "datasets"):
        trained("discrete_sac", *ONLINE)
        for name, policy in (("expert", "best"), ("mixed", "[best:0.5,random:0.5]")):
            request = (f"dataset=test/{name}-v0", "episodes=100", f"policy={policy}")
            assert record_status("run", *request) == 0
        for agent, data in (("bc", "expert"), ("awac", "mixed"), ("iql", "mixed")):
            offline = ("trainer=offline", f"replay_buffer.dataset=test/{data}-v0")
            result = trained(agent, *offline, f"run_dir={agent}", updates=2000)
            assert result.trainer_stats.best_score == levers.BEST, agent
