"""`run.json` tells what was run and how it ended."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from border_cli.run.record import RunRecord, derived_seeds, git_state, machine, versions


def read(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "run.json").read_text())
    return content


def test_a_run_is_running_until_it_ends(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, command=["border-train", "env=cartpole"])
    record.write()
    running = read(tmp_path)
    assert (running["status"], running["exit_reason"], running["ended"]) == ("running", None, None)
    assert running["pid"] == os.getpid()
    assert running["command"] == ["border-train", "env=cartpole"]

    record.end("done", "max_opt_steps reached", opt_steps=500, best_score=-math.inf)
    ended = read(tmp_path)
    assert (ended["status"], ended["exit_reason"]) == ("done", "max_opt_steps reached")
    assert ended["started"] <= ended["ended"]
    assert (ended["opt_steps"], ended["best_score"]) == (500, None)


def test_the_first_end_stays(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.end("failed", "Stalled: actor 0", opt_steps=3)
    first = read(tmp_path)
    record.end("interrupted", "stopped by SIGINT", opt_steps=4)
    assert read(tmp_path) == first


def test_an_end_that_could_not_be_written_is_written_by_the_next_attempt(tmp_path: Path) -> None:
    gone = tmp_path / "mounted later"
    record = RunRecord(gone)
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        record.end("failed", "the first")
    gone.mkdir()
    record.end("interrupted", "the second")
    assert (read(gone)["status"], read(gone)["exit_reason"]) == ("failed", "the first")


def test_the_seeds_in_it_are_those_that_follow_from_the_one() -> None:
    seeds = derived_seeds(3, 2)
    assert seeds["seed"] == 3
    assert set(seeds) == {"seed", "learner", "replay_buffer", "evaluation", "actor_envs"}
    numbers = [seeds["learner"], seeds["replay_buffer"], seeds["evaluation"], *seeds["actor_envs"]]
    assert len(set(numbers)) == 5
    assert derived_seeds(4, 2) != seeds


def test_versions_and_machine_are_told() -> None:
    assert {"python", "border-cli", "torch", "gymnasium", "numpy", "hydra-core"} <= set(versions())
    told = machine()
    assert told["cores"] >= 1
    assert set(told) == {"host", "system", "processor", "cores"}


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_state_of_the_users_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None  # outside of a repository
    git(tmp_path, "init")
    assert git_state(tmp_path) is None  # without a commit
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "new.log").write_text("outputs do not count")
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "mine.py").write_text("x = 2\n")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True}


def test_without_git_there_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None
