"""`border-tune` from the command line: refusals, output, files, and resuming a study."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.cli import eval as eval_command
from border_cli.cli import plot as plot_command
from border_cli.cli import runs as runs_command
from border_cli.cli.tune import main
from tests.support.case_sampling import weekly
from tests.support.commands import Command, facts_of, isolated, stamps

pytest.importorskip("optuna")

Capture = pytest.CaptureFixture[str]

RUNS = (  # settings of every run: two rungs, after one and two evaluations
    "trainer=sync",
    "trainer.max_env_steps=80",
    "trainer.eval_interval_env_steps=40",
    "trainer.warmup_period=8",
    "evaluator.num_episodes=1",
    "agent.hidden=[4]",
    "agent.batch_size=4",
)
STUDY = (
    "agent=dqn",
    "env=cartpole",
    *RUNS,
    "study=S",
    "rungs=2",
    "seeds=2",
    "jobs=2",
    "max_cost=0.9",
)
GAMMA = "hyperparameters: {agent.gamma: {low: 0.9, high: 0.99}}\n"
BROKEN = ("agent=dqn", "imports=[unruly]", "env.id=Raises-v0", "actor_manager.max_restarts=0")
DEADLINE_S = 600.0  # a study takes minutes on a busy machine
MINE = ("-cd", "conf", "search=mine", "sampler=random", "fresh_seeds=1")


def status(*argv: str, command: Callable[[tuple[str, ...]], None] = main) -> int:
    try:
        command(argv)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.fixture
def refusal(folder: Path, capsys: Capture) -> Callable[..., str]:
    """Runs a command that must exit with status 2 and create no file; returns its error message."""

    def _refusal(*argv: str) -> str:
        before = stamps(folder)
        assert status(*argv) == 2
        assert stamps(folder) == before
        said = capsys.readouterr().err
        assert said.startswith("border-tune: ")
        assert "Traceback" not in said
        return said

    return _refusal


def without(key: str) -> tuple[str, ...]:
    return tuple(override for override in STUDY if not override.startswith(f"{key}="))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (without("study"), "study=DIR is missing"),
        (without("env"), "env.id is null: choose an environment"),
        ((*STUDY, "trails=3"), "unknown setting 'trails', did you mean trials?"),
        ((*STUDY, "agent.gama=0.9"), "unknown setting 'agent.gama', did you mean agent.gamma?"),
        ((*STUDY, "seed=1"), "seed=1: not in border-tune: seeds=N trains each trial"),
        ((*STUDY, "run_dir=R"), "run_dir=R: not in border-tune: study=DIR sets the directory"),
        ((*STUDY, "resume=auto"), "the same command resumes a study"),
        ((*STUDY, "agent.gamma=0.9,0.99"), "agent.gamma=0.9,0.99 has several values"),
        ((*STUDY, "trials=3,4"), "trials=3,4 has several values"),
        ((*STUDY, "trials=0"), "trials must be at least 1, got 0"),
        ((*STUDY, "trials=many"), "trials must be an integer (at least 1)"),
        ((*STUDY, "sampler=best"), "sampler must be one of tpe, gp, random"),
        ((*STUDY, "trainer.stop_at_score=100"), "trainer.stop_at_score must be null in a study"),
        ((*STUDY, "trainer.patience=3"), "trainer.patience must be null in a study"),
        ((*STUDY, "trainer.max_time_s=60"), "trainer.max_time_s must be null in a study"),
        ((*STUDY, "~recorder.jsonl"), "recorder must have jsonl in a study"),
        ((*STUDY, "rungs=3"), "rungs=3 with reduction=3"),
        ((*STUDY, "max_cost=0.5"), "max_cost must be above 0.5, the cost of all trials up to the"),
        ((*STUDY, "search=nope"), "unknown search space 'nope' (choose from "),
        (("agent=random", *STUDY[1:3], "study=S"), "unknown search space 'random'"),
        (("--nope", *STUDY), "--nope"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    refusal: Callable[..., str], argv: tuple[str, ...], says: str
) -> None:
    assert says in refusal(*argv)


@pytest.mark.parametrize("key", ["stop_at_score", "patience", "max_time_s"])
def test_a_limit_that_ends_a_run_early_may_be_taken_back(
    refusal: Callable[..., str], key: str
) -> None:
    limits = (f"trainer.{key}=1", f"trainer.{key}=null")
    assert "choose fewer rungs" in refusal(*STUDY, *limits, "rungs=3")


def test_a_tuned_value_that_ends_a_run_early_is_ignored_and_reported(
    capsys: Capture,
) -> None:
    pair = ("agent=dqn", "env=cartpole", "study=S", "dry_run=true")
    assert status(*pair) == 0
    said = capsys.readouterr().out
    assert said.startswith("trainer.stop_at_score=null: the tuned value is ignored; all runs ")
    assert "budgets of 4,500 env steps, 13,500 env steps, 40,500 env steps" in said
    assert status(*pair, "trainer.stop_at_score=400") == 2
    assert "trainer.stop_at_score must be null in a study" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_study_is_refused(
    refusal: Callable[..., str], folder: Path
) -> None:
    (folder / "S").write_text("mine", encoding="utf-8")
    assert "run_dir=S: cannot create files in" in refusal(*STUDY)


def test_no_file_and_no_refusal_has_the_password_of_a_storage(
    folder: Path, capsys: Capture
) -> None:
    assert status(*STUDY, "storage='nosuchdb://me:secret@here/db'") == 2
    assert "storage=here/db: " in (said := capsys.readouterr().err)
    written = (folder / "S/study.json").read_text(encoding="utf-8")
    assert "storage" not in written
    assert "secret" not in said + written
    assert not list(folder.glob("S/trial*"))


def test_help_lists_the_keys_and_a_dry_run_what_would_be_searched(
    folder: Path, capsys: Capture
) -> None:
    assert status("--help") == 0
    said = capsys.readouterr().out
    assert all(f"  {key} " in said for key in ("study", "trials", "storage", "fresh_seeds"))
    assert status(*STUDY, "agent.gamma=0.9", "dry_run=true") == 0
    said = capsys.readouterr().out
    assert said.startswith("# search/dqn.yaml, budgets of 40 env steps, 80 env steps\n")
    assert "\n  agent.learning_rate: {" in said
    assert "agent.gamma" not in said  # given on the command line
    assert not list(folder.iterdir())


def studied(folder: Path, *argv: str, space: str = GAMMA) -> tuple[str, list[dict[str, Any]]]:
    """Runs a study in its own process; returns its exit status with its output, and its trials."""
    (folder / "conf/search").mkdir(parents=True, exist_ok=True)
    (folder / "conf/search/mine.yaml").write_text(space, encoding="utf-8")
    with Command(
        folder, *argv, *MINE, module="border_cli.cli.tune", deadline_s=DEADLINE_S
    ) as command:
        code, said = command.ended()
    return f"{code} {said}", json.loads((folder / "S/trials.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that contains a finished study of three trials."""
    folder = tmp_path_factory.mktemp("study")
    said, _ = studied(folder, *STUDY, "trials=3")
    assert said.startswith("0 ")
    assert "rror" not in said
    return folder


@pytest.mark.slow
@pytest.mark.long
def test_a_study_trains_its_trials_and_its_winner_once(done: Path) -> None:
    runs = [*done.glob("S/**/seed-*")]
    before = {run: stamps(run) for run in runs}
    said, rows = studied(done, *STUDY, "trials=3")  # the same command again
    assert said.startswith("0 ")
    assert {run: stamps(run) for run in runs} == before
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert {row["status"] for row in rows} <= {"complete", "pruned"}
    for row in rows:
        for seed in (0, 1):
            facts = facts_of(done / f"S/trial-{row['number']:04}/seed-{seed}")
            assert (facts["status"], facts["env_steps"]) == ("done", row["budget"])
            assert facts["settings"]["seed"] == seed
            assert row["settings"] == [f"agent.gamma={facts['settings']['agent.gamma']}"]
    full = [row for row in rows if row["status"] == "complete"]
    winner = max(full, key=lambda row: (sum(row["scores"]), -row["number"]))
    (best,) = done.glob("S/best/*/seed-*")
    assert best == done / f"S/best/trial-{winner['number']:04}/seed-1000"
    assert facts_of(best)["env_steps"] == 80


@pytest.mark.slow
@pytest.mark.long  # beside the one before, which uses the same study
def test_other_commands_work_on_the_folders_of_a_study(done: Path, capsys: Capture) -> None:
    with isolated(done):
        assert status("S", command=runs_command.main) == 0
        assert "trial-0001/seed-1" in capsys.readouterr().out
        assert status("S/trial-0001/seed-0", "episodes=1", command=eval_command.main) == 0
        assert status("S/trial-0000", "S/trial-0001", command=plot_command.main) == 0


@weekly
@pytest.mark.slow
@pytest.mark.long
def test_a_larger_number_adds_trials_and_other_settings_are_refused(done: Path) -> None:
    assert len(studied(done, *STUDY, "trials=5")[1]) == 5
    said, rows = studied(done, *STUDY, "trials=3")
    assert (said[:2], len(rows)) == ("0 ", 5)
    said, _ = studied(done, *STUDY, "agent.double=true")
    assert said.startswith("2 ")
    assert "was begun with different overrides" in said


@pytest.mark.slow
@pytest.mark.long
def test_a_trial_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    space = "hyperparameters: {env.kwargs.at: {choices: [1000000, 30]}}\n"
    few = ("trials=6", "seeds=1", "rungs=1")
    _, rows = studied(tmp_path, *BROKEN, *STUDY[2:], *few, space=space)
    failed = [row["reason"] for row in rows if row["status"] == "fail"]
    assert all("the simulator exploded after 30 steps" in reason for reason in failed)
    done = [row["scores"] for row in rows if row["status"] == "complete"]
    assert done == len(done) * [[20.0]]  # reward 1 for each of 20 steps
    assert 0 < len(done) < len(rows) == len(done) + len(failed)


@pytest.mark.slow
def test_a_study_all_of_whose_first_trials_fail_stops_and_says_why(tmp_path: Path) -> None:
    argv = (*BROKEN, "env.kwargs.at=30", *STUDY[2:], "seeds=1", "jobs=1", "trials=50")
    said, rows = studied(tmp_path, *argv)
    assert said.startswith("1 ")
    assert "border-tune: the first 3 trials failed, the last one with: seed-0: " in said
    assert [row["status"] for row in rows] == ["fail"] * 3
