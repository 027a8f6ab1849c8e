"""Schedules, intervals in env steps and patience follow their formulas, also after a resume."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.config import SerialConfig
from border_cli.agent.config import DqnConfig
from border_cli.core.state import load_state
from border_cli.core.stop import StopFlag
from border_cli.env.config import GymConfig
from border_cli.errors import Interrupted
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch.build import build_recorders
from border_cli.launch.effective import effective_settings
from border_cli.recorder.config import JsonlConfig
from border_cli.recorder.read import read_metrics
from border_cli.registry import register_builtin
from border_cli.replay_buffer.config import PrioritizedConfig
from border_cli.run.status import read_run
from border_cli.settings.run import RunConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import SyncConfig
from tests.support.whole_runs import trained

UPDATES = 200
SMALL: dict[str, Any] = {"hidden": [8], "batch_size": 8, "target_interval": 20}


def config_of(agent: dict[str, Any], buffer: dict[str, Any], **trainer: Any) -> RunConfig:
    register_builtin()
    settings = {"warmup_period": 50, "record_interval": 20, "save_interval": 30} | trainer
    return RunConfig(
        seed=5,
        agent=DqnConfig(**SMALL, **agent),
        env=GymConfig(id="CartPole-v1", max_episode_steps=40),
        step_processor=NStepConfig(),
        replay_buffer=PrioritizedConfig(capacity=200, **buffer),
        actor_manager=SerialConfig(num_actors=2),
        trainer=SyncConfig(**{"max_opt_steps": UPDATES, "eval_interval": 0} | settings),
        evaluator=EpisodesConfig(num_episodes=2),
        recorder={"jsonl": JsonlConfig()},
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Returns all rows, without what depends on the clock."""
    rows = read_metrics(folder / "metrics.jsonl")
    prefixes = ("opt_steps", "env_steps", "train/", "eval/", "episode/")
    return [{key: row[key] for key in row if key.startswith(prefixes)} for row in rows]


def agent_in(folder: Path) -> dict[str, Any]:
    return load_state(folder / "checkpoints" / "latest" / "agent.npz")


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = agent_in(one), agent_in(other)
    for part in ("online", "target"):
        for name, value in first[part].items():
            assert np.array_equal(value, second[part][name]), name


class StopsAt:
    """A recorder that stops the run once a row of at least `opt_steps` updates is written."""

    def __init__(self, stop: StopFlag, opt_steps: int) -> None:
        self._stop, self._opt_steps = stop, opt_steps

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def write(self, step: Any, *_: object, **__: object) -> None:
        if step.opt_steps >= self._opt_steps:
            self._stop.request(Interrupted(2))


def interrupted(config: RunConfig, folder: Path, at: int) -> None:
    stop = StopFlag()
    folder.mkdir()
    recorders = [*build_recorders(effective_settings(config), folder, None), StopsAt(stop, at)]
    with pytest.raises(Interrupted):
        trained(config, folder, recorders=recorders, stop=stop)


def test_values_at_ten_moments_are_those_of_the_formula_and_of_a_resumed_run(
    tmp_path: Path,
) -> None:
    config = config_of(
        {
            "learning_rate": {"initial": 4e-3, "final": 0, "kind": "cosine"},
            "epsilon": {"initial": 1, "final": 0.1, "kind": "linear", "steps": 150},
        },
        {"beta": {"initial": 0.25, "final": 1, "kind": "exponential"}},
    )
    trained(config, tmp_path / "whole")
    rows = [row for row in rows_of(tmp_path / "whole") if "train/loss" in row]
    assert [row["opt_steps"] for row in rows] == list(range(20, UPDATES + 1, 20))
    for row in rows:
        progress = row["opt_steps"] / UPDATES
        explored = min(1, row["env_steps"] / 150)
        assert row["train/learning_rate"] == pytest.approx(
            2e-3 * (1 + math.cos(math.pi * progress)), abs=1e-18
        )
        assert row["train/beta"] == pytest.approx(0.25 * 4**progress)
        assert row["train/epsilon"] == pytest.approx(1 - 0.9 * explored)
    interrupted(config, tmp_path / "cut", 90)
    trained(config, tmp_path / "cut", resume=True)
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert_same_weights(tmp_path / "cut", tmp_path / "whole")


def test_intervals_in_env_steps_are_exact_across_a_resume(tmp_path: Path) -> None:
    """The warm-up takes 50 env steps, and every update two more."""
    config = config_of(
        {}, {}, samples_per_opt_step=2.0, record_interval=100, save_interval=5_000,
        eval_interval=1_000, eval_interval_env_steps=75, save_interval_env_steps=90,
    )  # fmt: skip
    trained(config, tmp_path / "whole")
    rows = [row for row in rows_of(tmp_path / "whole") if "eval/return" in row]
    evaluated = [row["env_steps"] for row in rows if row["opt_steps"] < UPDATES]
    assert evaluated == [76, 150, 226, 300, 376]
    interrupted(config, tmp_path / "cut", 40)
    trained(config, tmp_path / "cut", resume=True)
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")


def test_evaluations_without_a_new_best_end_the_run_and_are_counted_across_a_resume(
    tmp_path: Path,
) -> None:
    nothing_learned = {"learning_rate": 1e-12}  # all evaluations have the same score
    config = config_of(nothing_learned, {}, eval_interval=10, patience=5)
    result = trained(config, tmp_path / "whole")
    assert (result.exit_reason, result.trainer_stats.opt_steps) == ("patience reached", 60)
    assert read_run(tmp_path / "whole")["status"] == "done"
    interrupted(config, tmp_path / "cut", 35)
    assert trained(config, tmp_path / "cut", resume=True).trainer_stats.opt_steps == 60
    longer = replace(config, trainer=replace(config.trainer, patience=7))
    assert trained(longer, tmp_path / "cut", resume=True).trainer_stats.opt_steps == 80
