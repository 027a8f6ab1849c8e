"""Signals end a run: the first one stops and saves, a second one quits immediately."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.errors import Interrupted
from border_cli.process.signals import early_signals, stopping_on_signals
from border_cli.run.finding import steps_saved
from border_cli.run.status import read_run
from tests.support.case_sampling import sampled
from tests.support.commands import ENDLESS, Command, facts_of, sweep_rows, train_status
from tests.support.terminals import TerminalCommand

Capture = pytest.CaptureFixture[str]

KINDS = {signal.SIGINT: (130, "SIGINT"), signal.SIGTERM: (143, "SIGTERM")}
KINDS[signal.SIGHUP] = (143, "SIGTERM")  # closing the terminal ends a run like a shutdown


@contextmanager
def disposed(signum: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """Sets the disposition of a signal within the block, as if the command had inherited it."""
    before = signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, before)


def sent(signum: signal.Signals, at: int = 60) -> tuple[str, str]:
    """Settings of a run whose environment sends it a signal during training."""
    return "env.id=Signals-v0", f"env.kwargs={{signum: {int(signum)}, at: {at}}}"


@pytest.mark.parametrize("signum", KINDS)
def test_one_signal_stops_and_saves_though_it_was_ignored_before(
    folder: Path, capfd: Capture, signum: signal.Signals
) -> None:
    """Shells start background commands with SIGINT ignored; `nohup` ignores SIGHUP."""
    inherited = signal.SIG_DFL if signum == signal.SIGHUP else signal.SIG_IGN
    status, name = KINDS[signum]
    with disposed(signum, inherited):
        assert train_status(*ENDLESS, *sent(signum)) == status
        assert signal.getsignal(signum) == inherited
    out, err = capfd.readouterr()
    assert f"{signum.name}: saving; press Ctrl-C again to quit immediately" in err
    assert f"warning: stopped by {name}" in out
    assert "Traceback" not in out + err
    facts = facts_of(folder / "run")
    assert (facts["status"], facts["exit_reason"]) == ("interrupted", f"stopped by {name}")
    assert facts["env_steps"] >= 60
    assert steps_saved(folder / "run") == [facts["opt_steps"]]


@pytest.mark.parametrize("columns", sampled([60, 80, 200], every=3))
def test_ctrl_c_leaves_one_panel_on_the_terminal_and_says_how_to_quit(
    folder: Path, columns: int
) -> None:
    with TerminalCommand(folder, *ENDLESS, "env.id=Calm-v0", columns=columns) as command:
        command.until(lambda rows: any("learning ──" in row for row in rows))
        command.press_ctrl_c()
        assert command.ended() == 130
    rows = command.screen()
    (top,) = [row for row in rows if row.startswith("╭")]
    (bottom,) = [at for at, row in enumerate(rows) if row.startswith("╰")]
    assert top.startswith("╭─ dqn_Calm-v0  ended ──")
    assert rows[bottom + 1] == "SIGINT: saving; press Ctrl-C again to quit immediately"
    assert rows[bottom + 2].endswith("warning: stopped by SIGINT")
    assert not any("Ctrl-C stops the run" in row for row in rows)
    assert all(len(row) <= columns for row in rows)


def test_ctrl_c_reaches_a_run_whose_solvers_take_it(folder: Path) -> None:
    """The monitor forwards Ctrl-C, so that none is lost."""
    env = ("env.id=Solves-v0", "actor_manager.num_actors=2", "actor_manager=thread")
    with TerminalCommand(folder, *ENDLESS, *env) as command:
        command.until(lambda rows: any("learning ──" in row for row in rows))
        command.press_ctrl_c()
        command.until(lambda rows: any("SIGINT: saving" in row for row in rows))
        assert command.ended() == 130
    assert facts_of(folder / "run")["exit_reason"] == "stopped by SIGINT"


def test_a_hang_up_that_was_ignored_stays_so_because_nohup_asks_for_it(
    folder: Path, capfd: Capture
) -> None:
    with disposed(signal.SIGHUP, signal.SIG_IGN):
        assert train_status(*ENDLESS, *sent(signal.SIGHUP), "trainer.max_opt_steps=200") == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert "SIGHUP" not in capfd.readouterr().err
    assert facts_of(folder / "run")["status"] == "done"


def test_a_requested_checkpoint_is_saved_and_the_run_continues(
    folder: Path, capfd: Capture
) -> None:
    last = ("trainer.max_opt_steps=200", "trainer.save_interval=0")
    assert train_status(*ENDLESS, *sent(signal.SIGUSR1), *last) == 0
    assert "SIGUSR1: saving a checkpoint; the run continues\n" in capfd.readouterr().err
    assert facts_of(folder / "run")["status"] == "done"
    first, end = steps_saved(folder / "run")
    assert 0 <= first < 200 == end


@pytest.mark.parametrize("signum", sampled([*KINDS], every=3))
def test_a_signal_before_the_run_leaves_by_all_finallys_with_its_status(
    tmp_path: Path, signum: signal.Signals
) -> None:
    """The signal arrives during an import; SIGINT and SIGTERM were inherited as ignored."""
    text = (
        f"import os, signal\ntry:\n    os.kill(os.getpid(), {int(signum)})\n"
        "finally:\n    print('tidied up', flush=True)\n"
    )
    (tmp_path / "hasty.py").write_text(text)
    ignored = "[signal.signal(signum, signal.SIG_IGN) for signum in (2, 15)]"
    with Command(tmp_path, *ENDLESS, "imports=[hasty]", "env=cartpole", before=ignored) as run:
        status, output = run.ended()
    assert status == KINDS[signum][0], output
    assert output.endswith("tidied up\nborder-train: interrupted\n")
    assert "Traceback" not in output


def test_a_second_signal_leaves_without_saving(tmp_path: Path) -> None:
    """The learner cannot react to the first signal, because an actor blocks its thread.

    All signals come from another process; the command has inherited SIGINT as ignored.
    """
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    blocked = ("actor_manager=serial", "env.id=Blocks-v0", "env.kwargs={at: 100, marker: blocks}")
    with Command(tmp_path, *ENDLESS, *blocked, before=ignored) as run:
        run.until((tmp_path / "blocks").exists)
        run.send(signal.SIGTERM)
        run.until(lambda: "SIGTERM: saving" in run.said_so_far())

        def pressed() -> bool:
            """Repeats SIGINT, which does not count within half a second of the first signal."""
            run.send(signal.SIGINT)
            return "without saving" in run.said_so_far()

        run.until(pressed)
        status, output = run.ended()
    assert status == 130, output
    assert output.endswith(
        "\nquit immediately without saving; earlier checkpoints, if any, are intact\n"
    )
    assert "\x1b" not in output
    facts = facts_of(tmp_path / "run")
    assert read_run(tmp_path / "run")["status"] == "killed"
    assert facts["seeds"]["seed"] == 0  # recorded at the start
    assert steps_saved(tmp_path / "run") == []


TWICE = """
import signal
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.process.signals import stopping_on_signals

with stopping_on_signals(StopFlag(), SaveFlag()):
    for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(signum)
    print("saved")
"""


def test_signals_that_come_together_do_not_leave() -> None:
    """`timeout` sends its signal to both the command and its process group."""
    ended = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "saved\n"), ended.stderr
    assert ended.stderr.count("saving") == 1


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_after_its_job(folder: Path, capfd: Capture) -> None:
    env = ("env.id=Signals-v0", "+env.kwargs.signum=2", "env.kwargs.at=30,1000000")
    assert train_status("-m", *ENDLESS, *env, "hydra/launcher=basic") == 130
    out = capfd.readouterr().out
    rows = sweep_rows(folder / "run")
    assert [(row["env.kwargs.at"], row["status"]) for row in rows] == [
        ("30", "interrupted"),
        ("1000000", "not started"),
    ]
    assert rows[0]["reason"] == "stopped by SIGINT"
    assert "0 of 2 jobs done" in out[out.rindex(" job ") :]


def test_the_first_signal_is_the_reason_and_handlers_come_back() -> None:
    all_of_them = [*KINDS, signal.SIGUSR1]
    before = [signal.getsignal(signum) for signum in all_of_them]
    stop, save = StopFlag(), SaveFlag()
    # Under `nohup` the tests themselves ignore SIGHUP.
    with disposed(signal.SIGHUP, signal.SIG_DFL), stopping_on_signals(stop, save):
        signal.raise_signal(signal.SIGUSR1)
        assert save.requested
        assert not stop.requested
        signal.raise_signal(signal.SIGHUP)
        assert stop.requested
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            stop.check()
    assert [signal.getsignal(signum) for signum in all_of_them] == before


def test_ctrl_c_is_heard_after_a_solver_in_another_thread_has_taken_its_handler_away() -> None:
    """Overlapping solvers can leave the C handler of one of them installed, unknown to Python."""
    stop = StopFlag()
    with stopping_on_signals(stop, SaveFlag()):
        ctypes.CDLL(None).signal(signal.SIGINT, ctypes.c_void_p(signal.SIG_IGN))
        signal.raise_signal(signal.SIGINT)
        assert not stop.requested
        evaluation = threading.Thread(target=stop.check)  # may not install signal handlers
        evaluation.start()
        evaluation.join()
        stop.check()  # as the learner does between two steps
        signal.raise_signal(signal.SIGINT)
        assert stop.requested


def test_a_second_signal_at_once_does_not_break_off_the_end_of_a_run_that_has_saved() -> None:
    with early_signals() as signals:
        with stopping_on_signals(StopFlag(), SaveFlag()):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert not signals.stop.requested


def test_a_loop_that_looks_at_the_flag_is_not_broken_off() -> None:
    with early_signals() as signals:
        with signals.polled() as stop:
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Interrupted, match="stopped by SIGTERM"):
                stop.check()
        assert signals.exit_status == 143


def test_requesting_a_checkpoint_outside_a_run_has_no_effect() -> None:
    with disposed(signal.SIGUSR1, signal.SIG_DFL):
        with early_signals():
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
