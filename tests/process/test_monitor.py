"""The monitor process of a command: detecting hangs that hold the GIL, and a second Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from border_cli.process.monitor import TICK_S, Monitor, SignalCount, is_stopped
from border_cli.run.lock import RunLock
from border_cli.run.status import RunRecord, end_from_outside
from tests.support.case_sampling import sampled
from tests.support.commands import ENDLESS, Command, facts_of
from tests.support.leftovers import below

HOLDS = (*ENDLESS, "env.id=Holds-v0", "env.kwargs={at: 100, marker: holds}")


@pytest.mark.slow
@pytest.mark.parametrize("actors", sampled(["thread", "serial"], every=2))
def test_a_call_that_keeps_the_interpreter_lock_ends_the_run_with_its_stack(
    tmp_path: Path, actors: str
) -> None:
    # A shorter timeout fails if the CPU is busy.
    overrides = (f"actor_manager={actors}", "trainer.stall_timeout_s=3")
    with Command(tmp_path, *HOLDS, *overrides) as run:
        status, output = run.ended()
    assert status == -signal.SIGKILL, output
    assert "border-train: no Python code ran for 3 s (trainer.stall_timeout_s)" in output
    assert " in go_wrong\n" in output, output
    assert "\x1b" not in output
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith("no Python code ran for 3 s")


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_command_that_cannot_hear_any(tmp_path: Path) -> None:
    """Ctrl-C reaches the command and its monitor; the monitor ignores all other signals."""
    with Command(tmp_path, *HOLDS) as run:
        run.until((tmp_path / "holds").exists)
        [monitor] = below(run.pid)  # the only child, as there are no actor processes
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGUSR1):
            os.kill(monitor, signum)

        def pressed() -> bool:
            """Sends SIGINT on every call, because Python merges signals that arrive together."""
            with suppress(ProcessLookupError):  # the monitor exits with the command
                os.kill(monitor, signal.SIGINT)
            return "killing it" in run.said_so_far()

        run.until(pressed)
        status, output = run.ended()
    assert status == -signal.SIGKILL, output
    assert "the command did not exit within 3 s of a second Ctrl-C; killing it\n" in output
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "interrupted"
    assert facts["exit_reason"].startswith("killed: the command did not exit within 3 s")


# Heartbeats and signals


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor("border-train", os.getppid(), -1)
    monitor.receive("2.0 ")
    return monitor


def miss(monitor: Monitor, seconds: float, *, stopped: bool = False) -> None:
    for _ in range(int(seconds / TICK_S)):
        monitor.count_silent_tick(stopped=stopped)


def test_a_command_that_gives_signs_is_never_stuck(monitor: Monitor) -> None:
    for _ in range(100):
        miss(monitor, 1.75)
        assert not monitor.is_stuck
        monitor.receive("")
    miss(monitor, 2.0)
    assert monitor.is_stuck


def test_a_command_that_is_stopped_is_not_stuck_and_has_its_whole_time_afterwards(
    monitor: Monitor,
) -> None:
    miss(monitor, 1.75)
    miss(monitor, 3600, stopped=True)
    miss(monitor, 1.75)
    assert not monitor.is_stuck


def test_a_command_that_ends_need_not_give_signs(monitor: Monitor) -> None:
    monitor.receive("inf ")
    miss(monitor, 3600)
    assert not monitor.is_stuck


def test_a_stopped_process_is_seen_as_such(tmp_path: Path) -> None:
    with Command(tmp_path, "-c", module="this") as other:
        other.send(signal.SIGSTOP)
        other.until(lambda: is_stopped(other.pid))
        other.send(signal.SIGCONT)
        other.until(lambda: not is_stopped(other.pid))
    assert not is_stopped(os.getpid())


def test_signals_within_half_a_second_count_once_and_a_key_that_is_held_twice_a_second() -> None:
    times_s = [7.0, 7.05, 7.45, 7.5, 7.75, 8.0, 9.0]
    signals = SignalCount(iter(times_s).__next__)
    assert [signals.register() for _ in times_s] == [True, False, False, True, False, True, True]


def test_a_signal_within_the_handler_of_another_one_does_not_count() -> None:
    nested: list[bool] = []

    def now_s() -> float:
        if not nested:
            nested.append(signals.register())
        return 7.0

    signals = SignalCount(now_s)
    assert signals.register()
    assert nested == [False]


# Records in run.json


def test_the_end_of_a_run_is_recorded_once_and_only_for_its_own_process(tmp_path: Path) -> None:
    assert not end_from_outside(tmp_path, os.getpid(), "failed", "too late")  # no run.json
    assert list(tmp_path.iterdir()) == []
    record = RunRecord(tmp_path)
    record.begin()
    assert not end_from_outside(tmp_path, os.getpid() + 1, "failed", "of another process")
    assert end_from_outside(tmp_path, os.getpid(), "failed", "it hung", traceback="where")
    facts = facts_of(tmp_path)
    assert (facts["exit_reason"], facts["traceback"]) == ("it hung", "where")
    assert not end_from_outside(tmp_path, os.getpid(), "killed", "twice")


def test_the_record_of_a_run_that_another_process_resumes_is_not_changed(
    tmp_path: Path,
) -> None:
    RunRecord(tmp_path).begin()
    code = (
        "import sys; from pathlib import Path\n"
        "from border_cli.run.lock import RunInUse\n"
        "from border_cli.run.status import end_from_outside\n"
        "try: end_from_outside(Path(sys.argv[1]), 7, 'failed', 'late')\n"
        "except RunInUse: print('in use')"
    )
    with RunLock(tmp_path):
        process = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert process.stdout == "in use\n"
        assert facts_of(tmp_path)["status"] == "running"
        assert end_from_outside(tmp_path, os.getpid(), "failed", "it hangs", stuck=True)


def test_a_command_that_exits_with_a_text_prints_it() -> None:
    code = "import sys; from border_cli.process.monitor import monitored as m\n"
    code += "with m('x'): sys.exit('no GPU')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (1, b"no GPU\n")
