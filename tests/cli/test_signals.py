"""Signals end a run: once to stop and save, twice to leave at once."""

from __future__ import annotations

import csv
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command, facts_of, train_status

from border_cli.cli.signals import stopping_on_signals
from border_cli.core.errors import Interrupted
from border_cli.core.stop import StopFlag
from border_cli.run.reading import steps_saved

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


@pytest.fixture(params=KINDS)
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that is ignored: a shell lets what it starts with `&` ignore SIGINT."""
    before = signal.signal(request.param, signal.SIG_IGN)
    yield request.param
    signal.signal(request.param, before)


def test_one_signal_stops_and_saves_though_it_was_ignored_before(
    folder: Path, capfd: Capture, ignored: signal.Signals
) -> None:
    own = ("env.id=Signals-v0", f"env.kwargs={{signum: {int(ignored)}, at: 60}}")
    status, name = KINDS[ignored]
    assert train_status(*ENDLESS, *own) == status
    assert signal.getsignal(ignored) == signal.SIG_IGN
    out, err = capfd.readouterr()
    assert f"{ignored.name}: stopping and saving; once more leaves at once" in err
    assert f"warning: stopped by {name}" in out
    assert "Traceback" not in out + err
    assert "next           border-eval run\n" in out
    facts = facts_of(folder / "run")
    assert (facts["status"], facts["exit_reason"]) == ("interrupted", f"stopped by {name}")
    assert facts["env_steps"] >= 60
    assert steps_saved(folder / "run") == [facts["opt_steps"]]


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    """The learner cannot hear the first one: its actor blocks in its own thread.

    Both come from outside, and SIGINT was ignored by whoever started the command.
    """
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    blocked = ("actor_manager=serial", "env.id=Blocks-v0", "env.kwargs={at: 100, marker: blocks}")
    with Command(tmp_path, *ENDLESS, *blocked, before=ignored) as run:
        run.until((tmp_path / "blocks").exists)
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
    own = ("env.id=Signals-v0", "+env.kwargs.signum=2", "env.kwargs.at=30,1000000")
    assert train_status("-m", *ENDLESS, *own) == 130
    out = capfd.readouterr().out
    with (folder / "run" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["status"]) for row in rows] == [("0", "interrupted")]
    assert rows[0]["reason"] == "Interrupted: stopped by SIGINT"
    table = out[out.rindex(" job ") :]
    assert "env.kwargs.at=30" in table
    assert "0 of 1 jobs done" in table


def test_the_first_signal_is_the_reason_and_handlers_come_back() -> None:
    before = [signal.getsignal(each) for each in KINDS]
    stop = StopFlag()
    with stopping_on_signals(stop, lambda _: None):
        signal.raise_signal(signal.SIGHUP)
        assert stop.requested
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            stop.check()
    assert [signal.getsignal(each) for each in KINDS] == before
