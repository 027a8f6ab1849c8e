"""Signals end a run: once to stop and save, twice to leave at once."""

from __future__ import annotations

import csv
import signal
import threading
from pathlib import Path

import pytest
from commands import Command, facts_of, process_state, rows_of, train_status

from border_cli.cli.signals import stopping_on_signals
from border_cli.core.errors import Interrupted
from border_cli.core.stop import StopFlag
from border_cli.run.checkpoint import steps_saved

Capture = pytest.CaptureFixture[str]

ENDLESS = (
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
KINDS = {signal.SIGINT: (130, "SIGINT"), signal.SIGTERM: (143, "SIGTERM")}
KINDS[signal.SIGHUP] = (143, "SIGTERM")  # a closed terminal ends a run as a shutdown does


@pytest.mark.parametrize("signum", KINDS)
def test_one_signal_stops_and_saves(folder: Path, capfd: Capture, signum: signal.Signals) -> None:
    own = ("env.id=Signals-v0", f"env.kwargs={{signum: {int(signum)}, at: 60}}")
    before = process_state()
    status, name = KINDS[signum]
    assert train_status(*ENDLESS, *own) == status
    out, err = capfd.readouterr()
    assert f"{signum.name}: stopping and saving; once more leaves at once" in err
    assert f"warning: stopped by {name}" in out
    assert "Traceback" not in out + err
    assert "next           border-eval run\n" in out
    facts = facts_of(folder / "run")
    assert (facts["status"], facts["exit_reason"]) == ("interrupted", f"stopped by {name}")
    assert facts["env_steps"] >= 60
    assert steps_saved(folder / "run") == [facts["opt_steps"]]
    assert process_state()["signals"] == before["signals"]
    assert process_state()["hang-up"] == before["hang-up"]


def test_ctrl_c_reaches_a_command_that_a_script_started_in_the_background(tmp_path: Path) -> None:
    """A shell lets what it starts with `&` ignore SIGINT."""
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    with Command(tmp_path, *ENDLESS, "env.id=Calm-v0", before=ignored) as run:
        run.until(lambda: _rows(tmp_path / "run") >= 3)
        run.send(signal.SIGINT)
        status, said = run.ended()
    assert status == 130, said
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "interrupted"
    assert steps_saved(tmp_path / "run") == [facts["opt_steps"]]
    assert rows_of(tmp_path / "run")[-1]["opt_steps"] == facts["opt_steps"]


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    """The learner cannot hear the first one: its actor blocks in its own thread."""
    blocked = ("actor_manager=serial", "env.id=Blocks-v0", "env.kwargs.at=100")
    with Command(tmp_path, *ENDLESS, *blocked) as run:
        run.until(lambda: _rows(tmp_path / "run") >= 3)
        run.send(signal.SIGTERM)
        run.until(lambda: "SIGTERM: stopping and saving" in run.said_so_far())
        run.send(signal.SIGINT)
        status, said = run.ended()
    assert status == 130, said
    assert said.endswith("\nleft at once; the last checkpoint is as it was\n")
    assert "\x1b" not in said
    facts = facts_of(tmp_path / "run")
    assert facts["status"] == "interrupted"
    assert facts["exit_reason"] == "left at once: stopped by SIGINT"
    assert facts["seeds"]["seed"] == 0  # what was known stays


def test_ctrl_c_ends_a_sweep_after_its_job(folder: Path, capfd: Capture) -> None:
    own = ("env.id=Signals-v0", "+env.kwargs.signum=2", "env.kwargs.at=1000000,60,1000001")
    assert train_status("-m", *ENDLESS, *own, "trainer.max_opt_steps=20") == 130
    out = capfd.readouterr().out
    with (folder / "run" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["status"]) for row in rows] == [("0", "done"), ("1", "interrupted")]
    assert rows[1]["reason"] == "Interrupted: stopped by SIGINT"
    table = out[out.rindex(" job ") :]
    assert "env.kwargs.at=60" in table
    assert "1 of 2 jobs done" in table


def test_the_first_signal_is_the_reason_and_handlers_come_back() -> None:
    before = [signal.getsignal(each) for each in KINDS]
    stop = StopFlag()
    with stopping_on_signals(stop, lambda _: None):
        signal.raise_signal(signal.SIGHUP)
        assert stop.requested
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            stop.check()
    assert [signal.getsignal(each) for each in KINDS] == before
    assert threading.current_thread() is threading.main_thread()


def _rows(run_dir: Path) -> int:
    return len(rows_of(run_dir)) if (run_dir / "metrics.jsonl").exists() else 0
