"""Commands with closed streams, a deleted working directory, or an environment that leaves threads
and processes behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ENDLESS, Command, facts_of, rows_of, train_status

ENDS = (*ENDLESS, "trainer.max_opt_steps=50")
CLOSED = "[os.close(fd) for fd in (0, 1, 2)]"  # as in cron jobs and daemons

LEAVES = """
import multiprocessing, os, sys, threading
from border_cli.process.monitor import monitored

reader, writer = os.pipe()

def serve():
    os.close(writer)
    os.read(reader, 1)  # until the command has ended

with monitored("border-train"):
    threading.Thread(target=threading.Event().wait, name="telemetry").start()
    multiprocessing.get_context("fork").Process(target=serve, name="simulator").start()
    print("done")
    sys.exit(3)
"""


def test_a_run_whose_standard_streams_are_closed_is_as_any_other(tmp_path: Path) -> None:
    settings = ("env.id=Prints-v0", "env.kwargs.at=40", "recorder=[jsonl,console]")
    with Command(tmp_path, *ENDS, *settings, before=CLOSED) as run:
        status, said = run.ended()
    assert (status, said) == (0, "")
    assert facts_of(tmp_path / "run")["status"] == "done"
    assert rows_of(tmp_path / "run")[-1]["opt_steps"] == 50


@pytest.mark.parametrize(
    ("argv", "module", "status"),
    [
        (["--version"], "border_cli", 0),
        (["agent=nobody"], "border_cli", 2),
        (["--help"], "border_cli.cli.tune", 0),
        (["nowhere"], "border_cli.cli.eval", 2),
    ],
)
def test_an_answer_that_nobody_reads_leaves_the_exit_status(
    tmp_path: Path, argv: list[str], module: str, status: int
) -> None:
    with Command(tmp_path, *argv, module=module, before=CLOSED) as command:
        assert command.ended() == (status, "")


def test_a_message_that_cannot_be_written_leaves_the_exit_status(tmp_path: Path) -> None:
    full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"
    with Command(tmp_path, "agent=nobody", before=full) as command:
        assert command.ended() == (2, "")


def test_a_run_is_done_though_the_current_directory_was_removed_meanwhile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, run_dir = folder / "gone", folder / "run"
    gone.mkdir()
    os.chdir(gone)
    try:
        settings = ("env.id=Removes-v0", "env.kwargs.at=40", f"run_dir={run_dir}")
        assert train_status(*ENDS, *settings) == 0
    finally:
        os.chdir(folder)
    assert not gone.exists()
    assert f"run directory  {run_dir}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_finished_command_does_not_wait_for_threads_and_processes_that_were_left() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, "done\n")
    said = "border-train: exiting without waiting any longer for telemetry, simulator\n"
    assert ended.stderr == said
