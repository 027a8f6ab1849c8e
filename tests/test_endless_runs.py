"""Episode limits of evaluations in an environment that never ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from border_cli.cli import export as export_command
from tests.support.commands import QUICK, eval_status, facts_of, record_status, train_status
from tests.support.datasets import datasets_in

LENGTH = 45  # time limit of training episodes, in env steps
RUN = (
    *QUICK,
    f"env.id={__name__}:Waiting",
    "recorder=none",
    "run_dir=run",
    "trainer=sync",
    "trainer.warmup_period=200",
    f"evaluator.env.max_episode_steps=null env.max_episode_steps={LENGTH}",
)


class Waiting(gym.Env[Any, Any]):
    """An environment whose episodes never end."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        return np.zeros(1, np.float32), 1.0, False, False, {}


def words(*more: str) -> list[str]:
    return [word for text in (*RUN, *more) for word in text.split()]


@pytest.fixture(autouse=True)
def in_folder(folder: Path) -> Path:
    return folder


def lengths(capsys: pytest.CaptureFixture[str], *typed: str) -> list[int]:
    capsys.readouterr()
    assert eval_status("run", "--json", *typed) == 0
    episode_lengths: list[int] = json.loads(capsys.readouterr().out)["lengths"]
    return episode_lengths


def test_a_limit_is_decided_once_and_holds_for_all_that_evaluates_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train_status(*words()) == 0
    assert "evaluated episodes end after 225 steps" in capsys.readouterr().out
    facts = facts_of(Path("run"))
    assert (facts["evaluation_episode_limit"], facts["best_score"]) == (225, 225.0)
    assert lengths(capsys) == [225]
    assert train_status("resume=run", "trainer.max_opt_steps=3") == 0
    assert "evaluated episodes end" not in capsys.readouterr().out
    assert facts_of(Path("run"))["evaluation_episode_limit"] == 225
    assert lengths(capsys) == [225]


def test_a_setting_replaces_what_would_be_decided(capsys: pytest.CaptureFixture[str]) -> None:
    assert train_status(*words("evaluator.max_episode_steps=50")) == 0
    assert "evaluated episodes end" not in capsys.readouterr().out
    assert "evaluation_episode_limit" not in facts_of(Path("run"))
    assert lengths(capsys) == [50]


@pytest.mark.parametrize(
    "setting", [(), ("evaluator.max_episode_steps=50 evaluator.env.max_episode_steps=100",)]
)
def test_recordings_and_exports_end_where_evaluations_do(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: tuple[str, ...]
) -> None:
    limit = 50 if setting else 225
    assert train_status(*words(*setting)) == 0
    with datasets_in(folder / "datasets"):
        capsys.readouterr()
        assert record_status("run", "dataset=a-v0", "episodes=1", "--json") == 0
    (policy,) = json.loads(capsys.readouterr().out)["policies"]
    assert policy["lengths"] == [limit]
    export_command.main(("run", "exported", "episodes=1", "onnx=false", "--json"))
    capsys.readouterr()
    assert eval_status("exported", "--json") == 0
    assert json.loads(capsys.readouterr().out)["lengths"] == [limit]


def test_a_limit_typed_for_the_environment_replaces_what_was_decided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train_status(*words()) == 0
    assert lengths(capsys, "env.max_episode_steps=300") == [300]
