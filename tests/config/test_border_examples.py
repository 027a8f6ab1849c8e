"""The experiments that port Border's examples have the settings of these examples.

The values come from Border's `examples/` at v0.0.8 (IQN: v0.0.7). Settings that an example does not
name are compared with the defaults.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.ported_settings import differing

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "from_border.md"

# The synchronous trainer: one environment and one update per step (`OPT_INTERVAL`).
SYNC = {
    "actor_manager.num_actors": 1,
    "trainer.samples_per_opt_step": 1.0,
    "step_processor.n_steps": 1,
}


def every(interval: int) -> dict[str, Any]:
    """Uses one interval for evaluating, recording and saving, as `EVAL_INTERVAL` in Border."""
    return {f"trainer.{name}_interval": interval for name in ("eval", "record", "save")}


CARTPOLE = SYNC | every(1_000) | {
    "env.id": "CartPole-v1",  # v0 is the same environment with a limit of 200 steps
    "env.max_episode_steps": 200,
    "agent.gamma": 0.99,
    "agent.batch_size": 64,
    "agent.learning_rate": 1e-3,
    "agent.tau": 0.01,
    "agent.target_interval": 1,
    "agent.double": False,
    "agent.max_grad_norm": None,
    "replay_buffer.capacity": 10_000,
    "trainer.warmup_period": 100,
    "trainer.warmup": "policy",
    "evaluator.num_episodes": 5,
}  # fmt: skip
PENDULUM = SYNC | every(2_000) | {
    "env.id": "Pendulum-v1",
    "agent.gamma": 0.99,
    "agent.batch_size": 128,
    "agent.learning_rate": 3e-4,
    "agent.tau": 0.005,
    "agent.max_grad_norm": None,
    "replay_buffer.capacity": 100_000,
    "trainer.max_opt_steps": 40_000,
    "trainer.warmup_period": 1_000,
    "trainer.warmup": "policy",
    "evaluator.num_episodes": 5,
}  # fmt: skip
EPSILON = {"initial": 1.0, "final": 0.02, "kind": "linear"}
ATARI = {
    "env.game": "pong",
    "env.id": "atari/pong",
    "env.episodic_life": False,  # episodic lives are commented out in the example
    "env.clip_rewards": True,
    "agent.gamma": 0.99,
    "agent.batch_size": 32,
    "agent.learning_rate": 1e-4,
    "agent.hidden": [512],
    "agent.tau": 1.0,
    "agent.target_interval": 10_000,  # soft_update_interval
    "agent.double": False,
    "agent.loss": "mse",
    "agent.max_grad_norm": None,
    "step_processor.n_steps": 1,
    "replay_buffer.capacity": 262_144,
    "trainer.max_opt_steps": 3_000_000,
    "trainer.eval_interval": 3_000,
    "trainer.record_interval": 3_000,
    "trainer.save_interval": 300_000,
    "evaluator.num_episodes": 1,
}
PEN = {
    "env.id": "gymnasium_robotics:AdroitHandPen-v1",
    "agent.batch_size": 256,
    "agent.learning_rate": 3e-4,
    "agent.normalize_obs": True,  # PenConverter
    "step_processor.n_steps": 1,
    "replay_buffer.dataset": "D4RL/pen/human-v2",
    "trainer.max_opt_steps": 1_000_000,
    "trainer.eval_interval": 1_000,
    "trainer.save_interval": 0,
    "evaluator.num_episodes": 5,
}
WEIGHTED = {
    "agent.gamma": 0.99,
    "agent.hidden": [256, 256, 256],
    "agent.inv_lambda": 10.0,
    "agent.exp_adv_max": 100.0,
    "agent.adv_softmax": False,
    "agent.num_critics": 2,
    "agent.tau": 0.005,
    "agent.max_grad_norm": None,
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "dqn_cartpole_border": CARTPOLE
    | {
        "agent.hidden": [256, 256],
        "agent.loss": "mse",
        "agent.exploration": "softmax",
        "agent.temperature": 1.0,
        "trainer.max_opt_steps": 10_000,
    },
    "iqn_cartpole_border": CARTPOLE
    | {
        "agent.hidden": [256, 256, 256],  # f_config [256] to 256 features, m_config [256]
        "agent.embedding_size": 64,
        "agent.num_quantiles_online": 8,  # Uniform8
        "agent.num_quantiles_target": 8,
        "agent.num_quantiles_acting": 32,  # Const32
        "agent.epsilon": EPSILON | {"steps": 10_000},  # MAX_OPTS / 3
        "trainer.max_opt_steps": 30_000,
    },
    "sac_pendulum_border": PENDULUM
    | {"agent.hidden": [64, 64], "agent.num_critics": 1, "agent.ent_coef": 1.0},
    "awac_pendulum_border": PENDULUM | WEIGHTED,
    "sac_fetch_reach_border": SYNC
    | every(5_000)
    | {
        "env.id": "gymnasium_robotics:FetchReach-v4",
        "agent.gamma": 0.99,
        "agent.batch_size": 256,
        "agent.hidden": [256, 256, 256],
        "agent.learning_rate": 3e-4,
        "agent.ent_coef": None,
        "agent.ent_coef_learning_rate": 3e-4,
        "agent.target_entropy": -4.0,
        "agent.num_critics": 2,
        "agent.tau": 0.05,
        "agent.max_grad_norm": None,
        "replay_buffer.capacity": 131_072,
        "trainer.max_opt_steps": 20_000_000,
        "trainer.warmup_period": 1_000,
        "trainer.warmup": "policy",
        "evaluator.num_episodes": 5,
    },
    "dqn_atari_border": ATARI
    | {
        "agent.epsilon": EPSILON | {"steps": 6 * 1_000_000},  # 1,000,000 actions per actor
        "actor_manager.num_actors": 6,
        "actor_manager.n_buffer": 100,
        "trainer.warmup_period": 100,  # 32 in the example, but actors send 100 samples at a time
        "trainer.warmup": "policy",
        "trainer.samples_per_opt_step": None,
        "trainer.sync_interval": 1,
    },
    "dqn_atari_sync_border": ATARI
    | SYNC
    | {
        "agent.epsilon": EPSILON | {"steps": 1_000_000},
        "trainer.warmup_period": 32,
        "trainer.warmup": "policy",
    },
    "bc_pen_border": PEN
    | {
        "agent.hidden": [256, 256],
        "agent.max_grad_norm": None,
        "agent.optimizer": "AdamW",
        "agent.optimizer_kwargs": {"weight_decay": 0.01},  # candle's default
        "trainer.record_interval": 1_000,
    },
    "awac_pen_border": PEN | WEIGHTED | {"trainer.record_interval": 100},
    "iql_pen_border": PEN
    | WEIGHTED
    | {
        "agent.expectile": 0.7,
        "agent.inv_lambda": pytest.approx(1 / 0.3333, abs=1e-4),
        "trainer.record_interval": 100,
    },
}
TRAINERS = {"dqn_atari_border": "async"} | {
    f"{agent}_pen_border": "offline" for agent in ("bc", "awac", "iql")
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_experiment_has_all_settings_of_the_example_of_border(name: str) -> None:
    trainer = TRAINERS.get(name, "sync")
    assert differing([f"experiment={name}"], trainer, EXAMPLES[name]) == {}


@pytest.mark.parametrize(("env", "own"), [("env.id=Ant-v4", "Ant-v4"), ("env=pong", "atari/pong")])
def test_a_random_policy_is_evaluated_for_five_episodes(env: str, own: str) -> None:
    command = f"agent=random {env} trainer=sync trainer.max_opt_steps=1 evaluator.num_episodes=5"
    assert f"`{command}`" in PAGE.read_text(encoding="utf-8")
    expected = {"env.id": own, "trainer.max_opt_steps": 1, "evaluator.num_episodes": 5}
    game = {"env.game": "pong"} if own == "atari/pong" else {}
    assert differing(command.split(), "sync", expected | game) == {}


def test_the_page_names_these_experiments_and_no_others() -> None:
    named = re.findall(r"`experiment=(\w+)", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(named)) == sorted(EXAMPLES)
