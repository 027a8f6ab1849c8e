"""A run directory belongs to one process; others see whether that is still there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import full_disk

from border_cli.core.errors import ConfigError
from border_cli.run.status import RunInUse, RunLock, process_start, read_run, running, this_process

HOLD = """
import os, sys
from pathlib import Path
from border_cli.run.status import RunLock
from border_cli.run.status import RunRecord
with RunLock(Path(sys.argv[1])):
    RunRecord(Path(sys.argv[1])).write()
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(run_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs in the directory until it is told, or killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def held(run_dir: Path) -> bool | None:
    with running(run_dir) as runs:
        return runs


def no_pause() -> None:
    """Looks again at once."""


def failing(number: int) -> Callable[[int, int], None]:
    """A `flock` that fails with this errno."""

    def flock(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, as some network file systems are."""

    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))


def refusal(run_dir: Path, pid: int | None = None) -> str:
    return f"{run_dir} is in use by process {pid or os.getpid()} on {os.uname().nodename}$"


def test_a_second_one_is_refused_and_told_who_runs_there(tmp_path: Path) -> None:
    run_dir = tmp_path / "made" / "here"
    assert held(run_dir) is False
    with RunLock(run_dir):
        assert held(run_dir) is True
        with pytest.raises(ConfigError, match=refusal(run_dir)), RunLock(run_dir, pause=no_pause):
            pass
        assert held(run_dir) is True  # the refused one has not given it back
    assert held(run_dir) is False
    with RunLock(run_dir):
        pass


def test_a_killed_process_gives_it_back(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        assert held(tmp_path) is True
        assert read_run(tmp_path)["status"] == "running"
        with (
            pytest.raises(RunInUse, match=refusal(tmp_path, process.pid)),
            RunLock(tmp_path, pause=no_pause),
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert held(tmp_path) is False
        assert read_run(tmp_path)["status"] == "killed"
        with RunLock(tmp_path):
            pass


def test_a_look_keeps_no_run_from_beginning(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    looking = running(tmp_path)
    assert looking.__enter__() is False
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            looking.__exit__(None, None, None)

    with RunLock(tmp_path, pause=pause):
        assert pauses == 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_neither_keeps_it_nor_gives_it_back(tmp_path: Path) -> None:
    told, tell = os.pipe()
    with RunLock(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(told, 1)  # lives on behind its parent's block
            os._exit(0)
        assert held(tmp_path) is True
        gone = os.fork()
        if gone == 0:
            os._exit(0)
        os.waitpid(gone, 0)
        assert held(tmp_path) is True
    assert held(tmp_path) is False
    os.write(tell, b"x")
    os.waitpid(child, 0)
    for each in (told, tell):
        os.close(each)


def test_a_program_that_is_started_does_not_have_it(tmp_path: Path) -> None:
    listing = "import os; print([os.path.realpath(f'/proc/self/fd/{n}') for n in range(64)])"
    with RunLock(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", listing],
            close_fds=False, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "run.lock" not in done.stdout


def test_a_full_disk_keeps_no_run_from_beginning(tmp_path: Path) -> None:
    with full_disk(0), RunLock(tmp_path):
        assert held(tmp_path) is True
        with (
            pytest.raises(RunInUse, match="is in use by another process"),
            RunLock(tmp_path, pause=no_pause),
        ):
            pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_process_itself_is_looked_for(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert held(tmp_path) is True
        with pytest.raises(RunInUse, match=refusal(tmp_path)), RunLock(tmp_path, pause=no_pause):
            pass
    assert held(tmp_path) is False
    with RunLock(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_killed_process_and_one_that_has_its_id_are_told_apart(
    tmp_path: Path,
) -> None:
    mine = this_process()
    for owner in (mine | {"pid": 2**22 + 1}, mine | {"process_start": "before the machine"}):
        (tmp_path / "run.lock").write_text(json.dumps(owner))
        assert held(tmp_path) is False
        with RunLock(tmp_path):
            pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_nobody_knows_of_another_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.lock").write_text(json.dumps(this_process() | {"host": "elsewhere", "pid": 7}))
    assert held(tmp_path) is None
    with RunLock(tmp_path):
        pass
    assert "last used by process 7 on elsewhere" in caplog.text


def test_another_failure_of_the_lock_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), RunLock(tmp_path):
        pass


def test_a_process_that_waits_to_be_reaped_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(process.pid)
    assert start is not None
    assert start == process_start(process.pid) != process_start(os.getpid())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_start(process.pid) is None
    process.communicate()


@pytest.mark.parametrize("content", ['{"pid": [], "host": 5}', '{"pid": "x", "host": "y"}', "[]"])
def test_an_owner_of_a_wrong_kind_is_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.lock").write_text(content)
    with (tmp_path / "run.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunInUse, match="is in use by another process"):
            RunLock(tmp_path, pause=lambda: None).__enter__()
