"""Runs of an on-policy agent: budgets, counters, weights and resumes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from border_cli import compose, resume, train
from border_cli.launch.effective import effective_settings
from border_cli.launch.header import trainer_line
from border_cli.run.finding import steps_saved
from tests.support.commands import rows_of

pytestmark = pytest.mark.usefixtures("folder")

SMALL = (
    *("agent=ppo", "env=cartpole", "~tuned", "run_dir=run", "recorder=[jsonl]"),
    *("agent.hidden=[8]", "agent.batch_size=16", "env.num_envs=4", "actor_manager.num_actors=1"),
    *("replay_buffer.n_steps=16", "replay_buffer.n_epochs=2", "evaluator.num_episodes=1"),
    *("trainer.eval_interval=0", "trainer.record_interval=1", "trainer.save_interval=0"),
)  # 64 env steps and 8 updates per rollout


def train_small(*settings: str) -> Any:
    return train(compose(*SMALL, *settings)).trainer_stats


def test_a_budget_in_env_steps_is_rounded_up_to_whole_rollouts() -> None:
    stats = train_small("trainer.max_opt_steps=null", "trainer.max_env_steps=130")
    assert (stats.env_steps, stats.samples_total, stats.opt_steps) == (192, 192, 24)


def test_updates_count_minibatches_and_a_limit_may_end_within_a_rollout() -> None:
    stats = train_small("trainer.max_opt_steps=11")
    assert (stats.env_steps, stats.opt_steps) == (128, 11)


def test_a_limit_of_the_divergence_drops_rollouts_early() -> None:
    stats = train_small(
        *("trainer.max_opt_steps=null", "trainer.max_env_steps=640"),
        *("agent.target_kl=1e-4", "agent.learning_rate=0.01"),
    )
    assert stats.env_steps == 640
    assert 10 <= stats.opt_steps < 80  # the first minibatch of a rollout is always applied


def test_actors_have_the_weights_of_the_end_of_the_last_rollout() -> None:
    """Log-probabilities of actors and learner agree only if both have the same weights."""
    train_small("trainer.max_opt_steps=64", "agent.learning_rate=0.01")
    rows = [row for row in rows_of(Path("run")) if "train/log_prob_gap" in row]
    assert len(rows) == 64
    assert max(row["train/log_prob_gap"] for row in rows) < 1e-5
    first_minibatches = [row for row in rows if row["opt_steps"] % 8 == 1]
    assert max(abs(row["train/approx_kl"]) for row in first_minibatches) < 1e-6


def test_without_rows_in_the_checkpoint_the_rollout_is_collected_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_rows = "checkpoint.replay_buffer=false"
    stats = train_small("trainer.max_opt_steps=11", no_rows)
    assert stats.env_steps == 128
    caplog.set_level(logging.INFO)
    stats = resume("run", "trainer.max_opt_steps=19").trainer_stats
    assert (stats.opt_steps, stats.env_steps) == (19, 128 + 64)
    assert steps_saved(Path("run"))[-1] == 19


def test_the_header_says_how_long_a_rollout_is_and_rounds_the_budget() -> None:
    config = compose(*SMALL, "trainer.max_opt_steps=null", "trainer.max_env_steps=130")
    line = trainer_line(effective_settings(config))
    assert line == "sync, rollouts of 64 env steps, 2 epochs each, until 192 env steps"
