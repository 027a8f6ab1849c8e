"""The process beside a command: hangs that hold the interpreter lock, deaths without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command, facts_of
from leftovers import below, is_alive
from sampling import sampled

from border_cli.cli.monitor import STOP_GRACE_S, Vigil, is_stopped
from border_cli.run.status import RunLock, RunRecord, end_from_outside, read_run

RUN = (
    "imports=[unruly]",
    "run_dir=run",
    "trainer.max_opt_steps=1000000",
    "trainer.warmup_period=20",
    "trainer.record_interval=10",
    "agent.hidden=[4]",
    "agent.batch_size=4",
    "evaluator.num_episodes=1",
    "actor_manager.num_actors=1",
    "actor_manager.n_buffer=10",
)
HOLDS = (*RUN, "env.id=Holds-v0", "env.kwargs={at: 100, marker: holds}")
ENDED = "ended without a report: killed, crashed, or ended by os._exit"


def monitor_of(command: Command) -> int:
    """Its only child, as long as it has no actor processes."""
    [pid] = below(command.pid)
    return pid


def until_it_learns(command: Command, folder: Path) -> None:
    rows = folder / "run" / "metrics.jsonl"
    command.until(lambda: rows.exists() and rows.stat().st_size > 0)


@pytest.mark.slow
@pytest.mark.parametrize("actors", sampled(["thread", "serial"], every=2))
def test_a_call_that_keeps_the_interpreter_lock_ends_the_run_with_its_stack(
    tmp_path: Path, actors: str
) -> None:
    own = (f"actor_manager={actors}", "trainer.stall_timeout_s=1")
    with Command(tmp_path, *HOLDS, *own) as run:
        status, said = run.ended()
    assert status == -signal.SIGKILL, said
    assert "border-train: no Python code ran for 1 s (trainer.stall_timeout_s)" in said
    assert " in go_wrong\n" in said
    assert "\x1b" not in said
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith("Stalled: no Python code ran for 1 s")
    assert " in go_wrong\n" in facts["traceback"]
    assert " in go_wrong\n" in (tmp_path / "run" / "border-train.log").read_text()


@pytest.mark.slow
def test_the_second_signal_ends_a_command_that_cannot_hear_any(tmp_path: Path) -> None:
    with Command(tmp_path, *HOLDS) as run:
        run.until((tmp_path / "holds").exists)
        run.send(signal.SIGTERM)
        run.send(signal.SIGINT)
        status, said = run.ended()
    assert status == -signal.SIGKILL, said
    assert said.endswith("were not answered within 3 s; killing it\n")
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "interrupted"
    assert facts["exit_reason"].startswith("killed: SIG")


@pytest.mark.parametrize(
    ("name", "ends"),
    sampled([("Leaves", 0), ("Faults", -signal.SIGSEGV), ("Calm", -signal.SIGKILL)], every=3),
)
def test_a_death_without_a_word_is_reported(tmp_path: Path, name: str, ends: int) -> None:
    with Command(tmp_path, *RUN, f"env.id={name}-v0", "env.kwargs.at=300") as run:
        until_it_learns(run, tmp_path)
        if name == "Calm":
            run.send(signal.SIGKILL)
        status, said = run.ended()
    assert status == ends, said
    assert said.endswith(f"\nborder-train: {ENDED}\n")
    assert ("in go_wrong" in said) == (name == "Faults")
    facts = facts_of(tmp_path / "run")
    assert (facts["status"], facts["exit_reason"]) == ("killed", ENDED)


@pytest.mark.slow
def test_a_run_goes_on_without_its_monitor_and_says_so(tmp_path: Path) -> None:
    with Command(tmp_path, *RUN, "env.id=Calm-v0") as run:
        until_it_learns(run, tmp_path)
        os.kill(monitor_of(run), signal.SIGKILL)
        run.until(lambda: "warning: the monitor process exited" in run.said_so_far())
        run.send(signal.SIGINT)
        status, said = run.ended()
    assert status == 130, said
    assert facts_of(tmp_path / "run")["status"] == "interrupted"
    assert "Exception ignored" not in said


@pytest.mark.slow
def test_what_is_killed_together_with_its_monitor_reads_as_killed(tmp_path: Path) -> None:
    with Command(tmp_path, *RUN, "env.id=Calm-v0") as run:
        until_it_learns(run, tmp_path)
        monitor = monitor_of(run)
        run.send(signal.SIGSTOP)  # so that neither sees the end of the other
        os.kill(monitor, signal.SIGKILL)
        run.send(signal.SIGKILL)
        run.ended()
    assert facts_of(tmp_path / "run")["status"] == "running"
    assert read_run(tmp_path / "run")["status"] == "killed"


@pytest.mark.slow
def test_signals_to_the_whole_group_leave_the_monitor_to_its_work(tmp_path: Path) -> None:
    with Command(tmp_path, *HOLDS) as run:
        run.until((tmp_path / "holds").exists)
        monitor = monitor_of(run)
        for signum in (signal.SIGUSR1, signal.SIGHUP, signal.SIGTSTP, signal.SIGTERM):
            os.kill(monitor, signum)
        assert is_alive(monitor)
        run.send(signal.SIGTERM)
        run.send(signal.SIGHUP)
        status, said = run.ended()
    assert status == -signal.SIGKILL, said


@pytest.mark.slow
def test_a_child_that_an_environment_forks_does_not_speak_for_the_command(tmp_path: Path) -> None:
    own = ("env.id=Forks-v0", "env.kwargs={at: 100, marker: told}", "trainer.max_opt_steps=200")
    with Command(tmp_path, *RUN, *own) as run:
        status, said = run.ended()
    assert status == 0, said
    assert (tmp_path / "told").read_text() == "-1"
    assert ENDED not in said


@pytest.mark.parametrize("command", ["eval", "record"])
def test_the_other_commands_have_a_monitor_too(command: str) -> None:
    """Python's own way out stands for an environment's."""
    code = (
        "import os, runpy, sys; sys.argv = ['x', 'RUN_DIR']; "
        f"import border_cli.cli.{command} as module; module.main = lambda: os._exit(0); "
        "module.command()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == f"\nborder-{command}: {ENDED}\n"


# What the monitor makes of what it sees


def test_a_command_that_gives_signs_is_never_stuck() -> None:
    vigil = Vigil()
    vigil.hear("timeout=2")
    for _ in range(100):
        vigil.wait(0.5, stopped=False)
        assert not vigil.is_stuck
        vigil.hear("alive=")
    for _ in range(4):
        assert not vigil.is_stuck
        vigil.wait(0.5, stopped=False)
    assert vigil.is_stuck


def test_a_command_that_is_stopped_is_not_stuck_and_has_its_whole_time_afterwards() -> None:
    vigil = Vigil()
    vigil.hear("timeout=2.0")
    for _ in range(3):
        vigil.wait(0.5, stopped=False)
    for _ in range(100):
        vigil.wait(0.5, stopped=True)
    for _ in range(3):
        vigil.wait(0.5, stopped=False)
    assert not vigil.is_stuck


def test_the_time_that_the_monitor_itself_has_slept_does_not_count() -> None:
    vigil = Vigil()
    vigil.hear("timeout=4.0")
    vigil.wait(3600.0, stopped=False)  # a closed laptop
    assert not vigil.is_stuck


def test_a_command_that_ends_need_not_give_signs() -> None:
    vigil = Vigil()
    vigil.hear("timeout=2.0")
    vigil.hear("farewell=")
    for _ in range(100):
        vigil.wait(1.0, stopped=False)
    assert not vigil.is_stuck


def test_one_signal_has_all_the_time_that_saving_takes_and_a_second_three_seconds() -> None:
    vigil = Vigil()
    vigil.hear_signal(signal.SIGUSR1)
    vigil.hear_signal(signal.SIGINT)
    for _ in range(100):
        vigil.wait(1.0, stopped=False)
        assert not vigil.is_deaf
    vigil.hear_signal(signal.SIGINT)
    vigil.wait(STOP_GRACE_S - 2.0, stopped=False)
    assert not vigil.is_deaf
    vigil.wait(1.0, stopped=False)
    vigil.wait(1.0, stopped=False)
    assert vigil.is_deaf


def test_a_stopped_process_is_seen_as_such(tmp_path: Path) -> None:
    with Command(tmp_path, "-c", module="this") as other:
        other.send(signal.SIGSTOP)
        other.until(lambda: is_stopped(other.pid))
        other.send(signal.SIGCONT)
        other.until(lambda: not is_stopped(other.pid))
    assert not is_stopped(os.getpid())


# What it writes


def test_the_end_of_a_run_is_told_once_and_of_its_own_process_only(tmp_path: Path) -> None:
    assert not end_from_outside(tmp_path, os.getpid(), "failed", "too late")  # no run.json
    assert list(tmp_path.iterdir()) == []
    record = RunRecord(tmp_path)
    record.begin()
    assert not end_from_outside(tmp_path, os.getpid() + 1, "failed", "of another process")
    assert end_from_outside(tmp_path, os.getpid(), "failed", "it hung", traceback="where")
    facts = facts_of(tmp_path)
    assert (facts["status"], facts["exit_reason"], facts["traceback"]) == (
        "failed", "it hung", "where",
    )  # fmt: skip
    assert facts["ended"] is not None
    assert not end_from_outside(tmp_path, os.getpid(), "killed", "twice")


def test_nothing_is_told_of_a_run_that_another_process_goes_on_with(tmp_path: Path) -> None:
    RunRecord(tmp_path).begin()
    code = (
        "import sys; from pathlib import Path\n"
        "from border_cli.run.status import RunInUse, end_from_outside\n"
        "try: end_from_outside(Path(sys.argv[1]), 7, 'failed', 'late')\n"
        "except RunInUse: print('in use')"
    )
    with RunLock(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
    assert done.stdout == "in use\n"
    assert facts_of(tmp_path)["status"] == "running"
