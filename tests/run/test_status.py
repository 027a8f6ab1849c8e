"""The lock and the status of a run directory, and the git state of the user's repository."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from border_cli.errors import ConfigError
from border_cli.run.lock import RunInUse, RunLock, running
from border_cli.run.provenance import git_state
from border_cli.run.run_folder import RunFolder
from border_cli.run.status import RunRecord, read_run
from border_cli.system.foreign import POLICY
from tests.support.commands import full_disk, other_process


def is_locked(run_dir: Path) -> bool | None:
    with running(run_dir) as is_running:
        return is_running


def failing(number: int) -> Callable[[int, int], None]:
    """Returns a `flock` that fails with this errno."""

    def flock(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, like some network file systems."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))


def refusal(run_dir: Path, pid: int | None = None) -> str:
    return f"{run_dir} is in use by process {pid or os.getpid()} on {os.uname().nodename}$"


def test_a_second_process_is_refused_and_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    run_dir = tmp_path / "made" / "here"
    assert is_locked(run_dir) is False
    with RunLock(run_dir):
        assert is_locked(run_dir) is True
        with pytest.raises(ConfigError, match=refusal(run_dir)), RunLock(run_dir):
            pass
        assert is_locked(run_dir) is True  # the refused process has not released the lock
    assert is_locked(run_dir) is False
    with RunLock(run_dir):
        pass


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        assert is_locked(tmp_path) is True
        assert read_run(tmp_path)["status"] == "running"
        with (
            pytest.raises(RunInUse, match=refusal(tmp_path, process.pid)),
            RunLock(tmp_path),
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert is_locked(tmp_path) is False
        before = (tmp_path / "run.json").read_bytes()
        assert read_run(tmp_path)["status"] == "killed"
        (tmp_path / "run.lock").unlink()  # as in a copy
        assert read_run(tmp_path)["status"] == "killed"
        assert (tmp_path / "run.json").read_bytes() == before
        with RunLock(tmp_path):
            pass


def test_checking_the_lock_does_not_prevent_a_run_from_starting(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    check = running(tmp_path)
    assert check.__enter__() is False
    timer = threading.Timer(0.05, lambda: check.__exit__(None, None, None))
    timer.start()
    with RunLock(tmp_path):
        timer.join()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_neither_holds_nor_releases_the_lock(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with RunLock(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(reader, 1)  # outlives the parent's `with` block
            os._exit(0)
        assert is_locked(tmp_path) is True
        short_lived = os.fork()
        if short_lived == 0:
            os._exit(0)
        os.waitpid(short_lived, 0)
        assert is_locked(tmp_path) is True
    assert is_locked(tmp_path) is False
    os.write(writer, b"x")
    os.waitpid(child, 0)
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_a_started_program_does_not_inherit_the_lock(tmp_path: Path) -> None:
    listing = "import os; print([os.path.realpath(f'/proc/self/fd/{n}') for n in range(64)])"
    with RunLock(tmp_path):
        process = subprocess.run(
            [sys.executable, "-c", listing],
            close_fds=False, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "run.lock" not in process.stdout


def test_a_full_disk_keeps_no_run_from_beginning(tmp_path: Path) -> None:
    with full_disk(0), RunLock(tmp_path):
        assert is_locked(tmp_path) is True
        with (
            pytest.raises(RunInUse, match="is in use by another process"),
            RunLock(tmp_path),
        ):
            pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_run_begins_with_a_warning_and_its_end_cannot_be_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunLock(tmp_path):
        RunRecord(tmp_path).begin()
        assert is_locked(tmp_path) is None
    assert f"{tmp_path} is on a file system without locks: make sure" in caplog.text
    assert read_run(tmp_path)["status"] == "running"


def read(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "run.json").read_text())
    return content


def test_a_run_is_running_until_it_ends(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.begin()
    running = read(tmp_path)
    assert (running["status"], running["ended"], running["pid"]) == ("running", None, os.getpid())
    record.end("done", "max_opt_steps reached", best_score=-math.inf)
    ended = read(tmp_path)
    assert (ended["status"], ended["exit_reason"]) == ("done", "max_opt_steps reached")
    assert ended["started"] <= ended["ended"]
    assert ended["best_score"] is None  # JSON has no infinity


def test_the_first_end_stays_and_no_progress_follows_it(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.begin()
    record.end("failed", "Stalled: actor 0", opt_steps=3)
    first = read(tmp_path)
    record.end("interrupted", "stopped by SIGINT", opt_steps=4)
    record.record_counters({"opt_steps": 4})
    record.progress({"opt_steps": 4})
    assert read(tmp_path) == first


def test_an_end_that_could_not_be_written_is_written_by_the_next_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = RunRecord(tmp_path)
    record.begin()
    path, aside = tmp_path / "run.json", tmp_path / "aside.json"
    path.rename(aside)
    path.mkdir()  # cannot be replaced by a file
    record.end("failed", "the first")
    assert "run.json could not be written: " in caplog.text
    path.rmdir()
    aside.rename(path)
    record.end("interrupted", "the second")
    assert (read(tmp_path)["status"], read(tmp_path)["exit_reason"]) == ("failed", "the first")


def test_a_record_that_has_not_begun_writes_nothing(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.record_counters({"opt_steps": 4})
    record.end("failed", "before it began")
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_retains_its_results_and_lists_every_attempt(tmp_path: Path) -> None:
    first = RunRecord(tmp_path, command=["one"], seeds={"seed": 3}, import_paths=["/mine"])
    first.begin()
    first.content["started"] = "2020-01-01T00:00:00+0000"
    stored: dict[str, Any] = {"best_score": 9.5, "best_opt_steps": 40, "final_score": 9.0}
    first.end("failed", "it broke", **stored, opt_steps=90, traceback="of then", bottleneck="a")
    RunRecord(tmp_path, command=["two"]).begin(50)
    facts = read(tmp_path)
    stored |= {"seeds": {"seed": 3}, "import_paths": ["/mine"], "started": first.content["started"]}
    now = {"status": "running", "exit_reason": None, "ended": None, "command": ["two"]}
    assert facts | stored | now | {"opt_steps": 50} == facts
    assert {"traceback", "bottleneck"} & set(
        facts
    ) == set()  # these describe only the failed attempt
    attempts = [(attempt["command"], attempt["from_opt_steps"]) for attempt in facts["attempts"]]
    assert attempts == [(["one"], 0), (["two"], 50)]


@pytest.mark.parametrize(
    ("left", "status"), [(None, "not started"), ("run.lock", "lost"), ("checkpoints", "lost")]
)
def test_what_a_run_left_tells_whether_it_has_begun(
    tmp_path: Path, left: str | None, status: str
) -> None:
    if left is not None:
        (tmp_path / left).mkdir()
    assert RunFolder(tmp_path).status == status


def test_a_run_goes_on_whose_document_is_lost(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    RunRecord(tmp_path, command=["two"]).begin(50)
    facts = read(tmp_path)
    assert [attempt["from_opt_steps"] for attempt in facts["attempts"]] == [50]
    assert facts["status"] == "running"


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_what_cannot_be_read_is_empty(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert read_run(tmp_path) == {}


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    process = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return process.stdout.strip()


def test_the_state_of_the_users_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None  # not inside a repository
    git(tmp_path, "init")
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "new.log").write_text("outputs do not count")
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "mine.py").write_text("x = 2\n")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit and one uncommitted change."""
    git(tmp_path, "init")
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "mine.py").write_text("x = 2\n")
    return tmp_path


def plant(repository: Path, attack: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `git status` run a program; returns the path of the file that the program creates."""
    mark, program = repository / "mark", repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("*.py filter=evil\n")
    config = repository / ".git" / "config"
    if attack == "fsmonitor":
        git(repository, "config", "core.fsmonitor", str(program))
    elif attack == "included":
        (repository / ".git/more").write_text(f'[filter "evil"]\n\tclean = {program}\n')
        config.write_text(config.read_text() + "[include]\n\tpath = more\n")
    elif attack == "lfs":  # the user's filter runs a command from the repository's config
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "filter.evil.clean")
        script = 'sh -c "$(git config lfs.extension.x.clean)"'
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", script)
        git(repository, "config", "lfs.extension.x.clean", str(program))
    elif attack == "worktree":
        git(repository, "config", "extensions.worktreeConfig", "true")
        git(repository, "config", "--worktree", "filter.evil.process", str(program))
    elif attack == "promisor":  # git runs a program to fetch a missing object
        tree = git(repository, "rev-parse", "HEAD^{tree}")
        (repository / ".git/objects" / tree[:2] / tree[2:]).unlink()
        for name, value in (
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "evil"),
            ("remote.evil.url", f"ext::{program}"),
            ("remote.evil.promisor", "true"),
            ("protocol.ext.allow", "always"),
        ):
            git(repository, "config", name, value)
    else:
        git(repository, "config", f"filter.evil.{attack}", str(program))
    return mark


@pytest.mark.parametrize(
    "attack", ["fsmonitor", "clean", "process", "included", "worktree", "lfs", "promisor"]
)
def test_the_state_of_a_repository_runs_no_program_of_it(
    repository: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    mark = plant(repository, attack, monkeypatch)
    with suppress(subprocess.CalledProcessError):
        git(repository, "status", "--porcelain")
    assert mark.exists(), "the attack has no effect on plain git"
    mark.unlink()
    state = git_state(repository)
    assert not mark.exists()
    if attack == "promisor":
        assert state is None
    else:
        assert state == {"commit": commit, "dirty": attack == "fsmonitor" or None}


@pytest.mark.parametrize("mark", ["sweep.json", "study.json", "policy.json"])
def test_no_git_runs_where_we_wrote_the_folder_of_the_repository(
    repository: Path, mark: str
) -> None:
    (repository / mark).write_bytes(POLICY)
    assert git_state(repository / "inside") is None
