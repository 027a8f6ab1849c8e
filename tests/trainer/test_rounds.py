"""Rounds of actors that are not reproducible: equal weights and exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from border_cli import compose
from border_cli.actor_manager.config import ThreadConfig
from border_cli.recorder.read import read_metrics
from border_cli.registry import ACTOR_MANAGERS
from tests.support.whole_runs import trained


@dataclass(kw_only=True)
class FreeConfig(ThreadConfig):
    """Actors that step as soon as they may, as on a cluster."""

    lockstep: ClassVar[str] = "border_cli.actor_manager.thread:ThreadActorManager"
    lockstep_repeats: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ACTOR_MANAGERS, "_entries", dict(ACTOR_MANAGERS._entries))
    ACTOR_MANAGERS.register("free", FreeConfig, FreeConfig.lockstep)


def ran(folder: Path, *typed: str) -> tuple[Any, list[dict[str, float]]]:
    """Returns the counters of a run with six actors, and its metrics."""
    config = compose(
        *typed, "env=cartpole", "env.num_envs=1", "trainer.record_interval=1",
        "trainer.stop_at_score=null", "trainer.eval_interval=0",
    )  # fmt: skip
    config.actor_manager = FreeConfig(num_actors=6, n_buffer=1)
    result = trained(config, folder)
    return result.trainer_stats, read_metrics(folder / "metrics.jsonl")


@pytest.mark.parametrize(("ratio", "per_round"), [(1, 6), (12, 12), (0.5, 6)])
def test_each_round_has_the_samples_that_updates_need_and_one_of_each_environment(
    ratio: float, per_round: int, tmp_path: Path
) -> None:
    stats, rows = ran(
        tmp_path, "agent=dqn", "~tuned", "trainer=sync", "step_processor=n_step",
        f"trainer.samples_per_opt_step={ratio}", "trainer.warmup_period=60",
        "trainer.max_opt_steps=50",
    )  # fmt: skip
    samples = [int(row["async/samples_total"]) for row in rows]
    assert samples[0] == 60
    assert {total % per_round for total in samples} == {0}
    assert {row.get("async/weight_lag", 0) for row in rows} == {0}
    needed = 60 + 49 * ratio
    assert needed <= stats.samples_total < needed + per_round


def test_a_budget_in_env_steps_ends_the_last_round(tmp_path: Path) -> None:
    stats, _ = ran(
        tmp_path, "agent=dqn", "~tuned", "trainer=sync", "step_processor=n_step",
        "trainer.warmup_period=60", "trainer.max_env_steps=100", "trainer.max_opt_steps=null",
    )  # fmt: skip
    assert stats.env_steps == 100
    assert stats.opt_steps >= 37


def test_rollouts_have_their_size_and_the_newest_weights(tmp_path: Path) -> None:
    sizes = "replay_buffer.n_steps=32", "agent.batch_size=64"
    stats, rows = ran(tmp_path, "agent=ppo", "~tuned", *sizes, "trainer.max_env_steps=900")
    assert stats.env_steps == stats.samples_total == 5 * 6 * 32
    assert {row.get("async/weight_lag", 0) for row in rows} == {0}
