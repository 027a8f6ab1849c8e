"""One job started from the shell: its files, its output, and how to repeat it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli import __version__
from border_cli.core.state import load_state
from tests.support import commands
from tests.support.commands import QUICK, facts_of, repeatable_rows, rows_of, train_status

Capture = pytest.CaptureFixture[str]
State = dict[str, Any]


TYPED = (
    "env=cartpole",
    "actor_manager=serial",
    "actor_manager.n_buffer=20",
    "trainer.samples_per_opt_step=1",
    "trainer.stop_at_score=null",
    "trainer.max_opt_steps=250",
    "trainer.warmup_period=50",
    "trainer.eval_interval=100",
    "trainer.save_interval=100",
    "trainer.record_interval=50",
    "evaluator.num_episodes=2",
    "agent.hidden=[8]",
    "seed=5",
)


@dataclass
class FinishedRun:
    folder: Path  # current directory of the command
    run_dir: Path
    said: str
    before: State  # state of this process before the run
    after: State


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """One run, shared by the tests that only read its results."""
    folder = tmp_path_factory.mktemp("job")
    with commands.isolated(folder) as patch, (folder / "said").open("w") as out:
        patch.setattr("sys.stdout", out)
        before = commands.process_state() | commands.lasting_state()
        assert train_status(*TYPED, "run_dir=run") == 0
        after = commands.process_state() | commands.lasting_state()
    return FinishedRun(folder, folder / "run", (folder / "said").read_text(), before, after)


def test_run_json_tells_what_was_run_and_how_it_ended(ran: FinishedRun) -> None:
    facts = facts_of(ran.run_dir)
    assert (facts["status"], facts["exit_reason"]) == ("done", "max_opt_steps reached")
    assert facts["command"] == ["border-train", *TYPED, "run_dir=run"]
    assert facts["import_paths"] == []  # no user module is needed
    assert facts["versions"]["border-cli"] == __version__
    assert facts["seeds"]["seed"] == 5
    assert len(set(facts["seeds"]["actor_envs"])) == 2
    assert facts["opt_steps"] == 250
    # 50 warm-up samples and one per update; actors run at most 4 x 20 samples ahead
    assert 300 <= facts["samples_total"] <= 380
    assert facts["env_steps"] >= facts["samples_total"]
    assert facts["started"] <= facts["ended"]


def test_the_saved_settings_repeat_the_run(ran: FinishedRun, folder: Path) -> None:
    shutil.copy(ran.run_dir / ".hydra" / "resolved.yaml", folder / "frozen.yaml")
    assert train_status("-cd", ".", "-cn", "frozen", "run_dir=again", "quiet=true") == 0
    again = folder / "again"
    assert repeatable_rows(again) == repeatable_rows(ran.run_dir)
    assert facts_of(again)["best_score"] == facts_of(ran.run_dir)["best_score"]
    for name in ("checkpoints/latest", "best"):
        files = (run / name / "agent.npz" for run in (again, ran.run_dir))
        np.testing.assert_equal(*(load_state(path)["online"] for path in files))


def test_the_weights_of_a_run_are_read_with_numpy_alone(ran: FinishedRun) -> None:
    with np.load(ran.run_dir / "best" / "agent.npz") as arrays:
        weights = arrays["online/mlp.layers.0.weight"]
        assert arrays["optimizer/means/0"].shape == weights.shape == (8, 4)


def test_every_evaluation_is_recorded_and_the_last_one_is_final(ran: FinishedRun) -> None:
    rows = rows_of(ran.run_dir)
    evaluations = [row for row in rows if "eval/return" in row]
    assert [row["opt_steps"] for row in evaluations] == [100, 200, 250]
    assert [row.get("final", False) for row in evaluations] == [False, False, True]
    assert [row["opt_steps"] for row in rows if "train/loss" in row] == [50, 100, 150, 200, 250]
    assert max(row["eval/return"] for row in evaluations) == facts_of(ran.run_dir)["best_score"]
    assert evaluations[-1]["eval/return"] == facts_of(ran.run_dir)["final_score"]


def test_the_last_lines_show_the_directory_the_score_and_the_next_commands(
    ran: FinishedRun,
) -> None:
    facts = facts_of(ran.run_dir)
    assert ran.said.splitlines()[-4:] == [
        "run directory  run",
        f"best score     {facts['best_score']:.1f} at {facts['best_opt_steps']} updates",
        "next           border-eval run",
        "               tensorboard --logdir .",
    ]
    assert "receive samples" not in ran.said  # printed only with statistics=true
    assert "receive samples" in (ran.run_dir / "border-train.log").read_text(encoding="utf-8")


def test_the_header_says_what_is_about_to_run(ran: FinishedRun) -> None:
    first = ran.said.splitlines()[0]
    assert first.split() == ["border_cli", __version__, "dqn_cartpole", "seed", "5"]
    for text in (
        "conf/tuned/dqn_cartpole.yaml",
        "async, 1 sample per update, until 250 updates",
        "2 x 1 env, serial, in turn in the learner's thread; bit-reproducible",
        str(ran.run_dir),
    ):
        assert text in ran.said


def test_a_run_leaves_its_process_as_it_was(ran: FinishedRun) -> None:
    assert ran.after == ran.before


def test_a_quiet_run_prints_its_score_and_its_directory_in_one_line(
    folder: Path, capfd: Capture
) -> None:
    quiet = ("env=cartpole", *QUICK, "quiet=true", "run_dir=run")
    assert train_status(*quiet) == 0
    facts = facts_of(folder / "run")
    line = f"best score {facts['best_score']:.10g} at {facts['best_opt_steps']} updates: run\n"
    assert capfd.readouterr() == (line, "")
    assert facts["status"] == "done"
    assert train_status(*quiet, "resume=auto") == 0  # already finished: nothing to do
    assert capfd.readouterr() == (line, "")
