"""Tests of our components, and an end-to-end test of the first experiment."""

import csv
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from border_cli import compose, train
from border_cli.core.output import RecordStep, RunInfo
from border_cli.errors import ConfigError
from gymnasium.utils.env_checker import check_env

import my_experiments.catch  # registers the environment with Gymnasium
from my_experiments.config import ScoreFileConfig
from my_experiments.mellow_dqn import mellowmax
from my_experiments.score_file import ScoreFile

CONF = str(Path(__file__).parents[1] / "conf")


def test_a_mellowmax_lies_between_the_mean_and_the_maximum() -> None:
    values = torch.tensor([[0.0, 1.0], [3.0, 3.0]])
    # The mellowmax of 0 and 1 with omega 1 is log((1 + e) / 2).
    torch.testing.assert_close(mellowmax(values, 1.0), torch.tensor([[0.62011], [3.0]]))
    for omega, expected in ((1e-3, 0.5), (1e4, 1.0)):
        torch.testing.assert_close(
            mellowmax(values, omega), torch.tensor([[expected], [3.0]]), atol=1e-3, rtol=0
        )


def test_the_paddle_below_the_ball_catches_it() -> None:
    env = my_experiments.catch.Catch(rows=4, columns=3)
    board, _ = env.reset(seed=0)
    rewards = []
    for _ in range(3):
        ball, paddle = int(board[:-1].any(axis=0).argmax()), int(board[-1].argmax())
        board, reward, terminated, _, _ = env.step(np.int64(1 + (ball > paddle) - (ball < paddle)))
        rewards.append(reward)
    assert terminated
    assert rewards == [0.0, 0.0, 1.0]


def test_the_environment_follows_the_gymnasium_api() -> None:
    check_env(gym.make("Catch-v0").unwrapped, skip_render_check=True)


def test_the_first_experiment_learns_and_writes_its_scores(tmp_path: Path) -> None:
    config = compose(
        "experiment=first", "trainer=sync", f"run_dir={tmp_path / 'run'}", "recorder=[scores]",
        config_dir=CONF,
    )  # fmt: skip
    assert train(config).best_score == 1.0
    with (tmp_path / "run" / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["opt_steps"]) for row in rows[:2]] == [250, 500]
    assert float(rows[-1]["eval/return"]) == 1.0


def test_a_resumed_run_duplicates_no_line_of_the_table(tmp_path: Path) -> None:
    info = RunInfo(
        name="run", run_dir=tmp_path, max_opt_steps=9, max_env_steps=None, max_time_s=None
    )
    config = ScoreFileConfig(digits=1)
    recorder = ScoreFile(config, info=info)
    recorder.write(RecordStep(opt_steps=1, env_steps=2, time_s=0.5), {"eval/return": -1.0})
    position = recorder.position()
    recorder.write(RecordStep(opt_steps=2, env_steps=4, time_s=1.0), {"eval/return": 1.0})
    recorder.close()

    resumed = ScoreFile(config, info=info)
    resumed.rewind(position)
    resumed.write(RecordStep(opt_steps=2, env_steps=4, time_s=1.5), {"train/loss": 0.1})
    resumed.write(RecordStep(opt_steps=2, env_steps=4, time_s=1.5), {"eval/return": 0.04})
    resumed.close()
    lines = (tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert lines == ["opt_steps,env_steps,time_s,eval/return", "1,2,0.500,-1.0", "2,4,1.500,0.0"]


def test_a_double_mellowmax_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"agent\.double cannot be combined with a mellowmax"):
        compose("experiment=first", "agent.double=true", config_dir=CONF)
