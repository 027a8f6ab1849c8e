"""MultiDiscrete and MultiBinary actions from end to end: a task whose best score is known."""

from __future__ import annotations

from pathlib import Path

import levers
import numpy as np
import pytest
from commands import record_status, train_status
from datasets import datasets_in

from border_cli import compose, load_policy, train
from border_cli.errors import ConfigError

pytestmark = pytest.mark.usefixtures("folder")
ENV = ("imports=[levers]", "env.id=border/Levers-v0")
SMALL = (
    *("agent.hidden=[64]", "agent.batch_size=64", "agent.learning_rate=3e-3", "run_dir=run"),
    *("trainer.eval_interval=500", "recorder=none", "evaluator.num_episodes=1"),
    *(f"trainer.stop_at_score={levers.BEST}", "trainer.stop_evals=1"),
)
ONLINE = ("trainer=sync", "trainer.warmup_period=500", "agent.gamma=0.8", "agent.tau=0.02")


def plays_best(run_dir: str, positions: tuple[int, ...], shape: tuple[int, ...]) -> None:
    policy = load_policy(run_dir)
    for state in range(levers.STATES):
        action = policy.act(state)
        assert np.shape(action) == shape
        assert np.ravel(action).tolist() == levers.best_action(state, positions).tolist()


def test_unlike_joint_actions_factored_ones_have_no_limit():
    too_many = (*ENV, *SMALL, *ONLINE, "agent.max_joint_actions=23", "trainer.max_opt_steps=20")
    with pytest.raises(ConfigError, match=r"24 of them.*agent\.max_joint_actions=23"):
        train(compose("agent=dqn", *too_many))
    assert not Path("run").exists()
    train(compose("agent=discrete_sac", *ENV, *SMALL, *ONLINE, "trainer.max_opt_steps=20"))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["dqn", "discrete_sac"])
def test_joint_and_factored_actions_reach_the_best_score(agent: str):
    result = train(compose(f"agent={agent}", *ENV, *SMALL, *ONLINE, "trainer.max_opt_steps=6000"))
    assert result.trainer_stats.best_score == levers.BEST
    plays_best("run", levers.POSITIONS, (3,))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["dqn", "discrete_sac"])
def test_switches_are_set_as_the_environment_has_them(agent: str):
    switches = ("imports=[levers]", "env.id=border/Switches-v0")
    settings = (*switches, *SMALL, *ONLINE, "trainer.max_opt_steps=6000")
    assert train(compose(f"agent={agent}", *settings)).trainer_stats.best_score == levers.BEST
    plays_best("run", (2, 2, 2, 2), (2, 2))


@pytest.mark.slow
def test_offline_agents_reach_the_best_score_by_data_of_all_kinds(tmp_path: Path):
    with datasets_in(tmp_path / "datasets"):
        settings = (*ENV, *SMALL, *ONLINE, "trainer.max_opt_steps=6000")
        assert train_status("agent=discrete_sac", *settings, "quiet=true") == 0
        for name, policy in (("expert", "best"), ("mixed", "[best:0.5,random:0.5]")):
            what = (f"dataset=test/{name}-v0", "episodes=100", f"policy={policy}")
            assert record_status("run", *what) == 0
        cases = (("bc", "expert"), ("awac", "mixed"), ("iql", "mixed"), ("dqn", "mixed"))
        for agent, data in cases:
            result = train(
                compose(
                    f"agent={agent}", *ENV, *SMALL, "trainer=offline", f"run_dir={agent}",
                    f"replay_buffer.dataset=test/{data}-v0", "trainer.max_opt_steps=2000",
                    "agent.gamma=0.8",
                )
            )  # fmt: skip
            assert result.trainer_stats.best_score == levers.BEST, agent
            plays_best(agent, levers.POSITIONS, (3,))
