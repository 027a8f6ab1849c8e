"""Sweeps: every job for itself, and one table of all."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from commands import (
    QUICK,
    facts_of,
    isolated,
    open_files_below,
    process_state,
    repeatable_rows,
    train_status,
)

Capture = pytest.CaptureFixture[str]

SWEEP = (
    "-m",
    *QUICK,
    "imports=[unruly]",
    "env.id=NeedsFile-v0",
    "run_dir=S",
    "trainer.max_opt_steps=120",
    "actor_manager=serial",
    "actor_manager.max_restarts=0",
    "env.kwargs.file=a,b,c",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and output of a sweep whose second job failed."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "b").touch()
    with isolated(folder) as patch, (folder / "said").open("w") as out:
        patch.setattr("sys.stdout", out)
        assert train_status(*SWEEP) == 1
    return folder, (folder / "said").read_text()


def test_a_job_that_fails_leaves_the_others_alone(swept: tuple[Path, str]) -> None:
    folder, _ = swept
    rows = _rows(folder)
    assert [(row["job"], row["status"]) for row in rows] == [
        ("0", "done"),
        ("1", "failed"),
        ("2", "done"),
    ]
    # reward 1 for each of 20 steps
    assert [row["score"] for row in rows] == ["20.0", "", "20.0"]
    assert [row["opt_steps"] for row in rows][::2] == ["120", "120"]
    assert rows[1]["reason"].startswith("ActorCrashed: actor ")
    assert "RuntimeError: b is in the way" in rows[1]["reason"]
    assert rows[1]["reason"].endswith("(actor_manager.max_restarts=0)")  # no title of a traceback
    folders = [Path(row["folder"]) for row in rows]
    assert [facts_of(each)["status"] for each in folders] == ["done", "failed", "done"]
    assert facts_of(folders[1])["exit_reason"] == rows[1]["reason"]
    logs = [(each / "border-train.log").read_text() for each in folders]
    assert ["b is in the way" in log for log in logs] == [False, True, False]


def test_the_table_of_a_sweep_shows_what_was_swept(swept: tuple[Path, str]) -> None:
    folder, said = swept
    before, table = said.split(" job ")
    assert "error: actor" in before  # the failure was said at once
    assert [f"env.kwargs.file={each}" in table for each in "abc"] == [True] * 3
    assert "trainer.max_opt_steps" not in table.partition("next  ")[0]  # common to all
    assert "2 of 3 jobs done\n" in table
    assert f"\nsweep directory  {folder / 'S'}\n" in table
    assert table.splitlines()[-1].startswith("next             ")
    assert table.endswith(" env.kwargs.file=a,b,c resume=auto\n")
    assert "border-train -m " in table
    assert " 'agent.hidden=[4]' " in table  # as a shell must be told


@pytest.mark.slow
def test_the_same_command_runs_only_what_failed(
    swept: tuple[Path, str], folder: Path, capsys: Capture
) -> None:
    shutil.copytree(swept[0] / "S", folder / "S", symlinks=True)
    jobs = [folder / "S" / Path(row["folder"]).name for row in _rows(folder)]
    first = [(each / "run.json").read_bytes() for each in jobs]
    assert train_status(*SWEEP, "resume=auto") == 0
    said = capsys.readouterr().out
    assert [row["status"] for row in _rows(folder)] == ["done", "done", "done"]
    assert [row["score"] for row in _rows(folder)] == ["20.0", "20.0", "20.0"]
    again = [(each / "run.json").read_bytes() for each in jobs]
    assert [old == new for old, new in zip(first, again, strict=True)] == [True, False, True]
    assert said.count("is finished with score 20.0: max_opt_steps=120 reached") == 2
    assert not (jobs[0] / ".hydra" / "resume-1").exists()
    assert (jobs[1] / ".hydra" / "resume-1" / "overrides.yaml").is_file()
    assert facts_of(jobs[1])["status"] == "done"
    assert "3 of 3 jobs done" in said


@pytest.mark.slow
def test_a_quiet_sweep_prints_no_table_and_leaks_nothing_into_its_next_job(
    folder: Path, capfd: Capture
) -> None:
    argv = (*QUICK, "env=cartpole", "actor_manager=serial", "quiet=true")
    assert train_status(*argv, "seed=2", "run_dir=alone") == 0
    before = process_state()
    assert train_status("-m", *argv, "seed=1,2", "run_dir=S") == 0
    assert process_state() == before
    assert len(open_files_below(folder)) <= 1  # the log of the last job
    second = Path(_rows(folder)[1]["folder"])
    assert repeatable_rows(second) == repeatable_rows(folder / "alone")
    out, err = capfd.readouterr()
    folders = ["alone", *(str(Path(row["folder"]).relative_to(folder)) for row in _rows(folder))]
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == folders
    assert err == ""


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "S" / "sweep.csv").open() as file:
        return list(csv.DictReader(file))
