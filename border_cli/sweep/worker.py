"""Execution of one job of a sweep, whichever launcher starts it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.core.stop import SaveFlag
from border_cli.launch.job import Outcome, train_job
from border_cli.launch.run import RunOptions
from border_cli.process.monitor import monitored
from border_cli.process.signals import (
    ignoring_signals,
    saving_before_a_requeue,
    stopping_on_signals,
)
from border_cli.process.startup import set_up_threads
from border_cli.run.sweep_folder import read_stop, write_stop
from border_cli.settings.run import OnError
from border_cli.sweep.request import Request, read_request
from border_cli.system.child import Pipe, end_with
from border_cli.system.machine import share_cores

if TYPE_CHECKING:
    from omegaconf import DictConfig

OUTPUT = "output.log"  # output of a job that runs in another process than the command


def run(request: Request, options: RunOptions | None = None, **how: Any) -> Outcome:
    """Runs a job to its end, see `train_job`. Starts nothing if the sweep is stopped."""
    job, root = request.job, Path(request.root)
    stop_reason = read_stop(root)
    if stop_reason is not None:
        return Outcome(status="not started", reason=f"not started: {stop_reason}")
    outcome = train_job(job, options, **how)
    if outcome.status == "failed" and job.config.sweep.on_error == OnError.stop:
        write_stop(root, f"job {job.number} failed (sweep.on_error=stop)")
    return outcome


def run_in_a_child(folder: str, _: Pipe) -> None:
    """Runs one job in a process of ours, here or on a node of a cluster."""
    _print_into(Path(folder))
    options = RunOptions()
    # Signals that arrive before the run handles them are not lost.
    with monitored("border-train"), stopping_on_signals(options.stop, SaveFlag(), leaves=False):
        set_up_threads()
        request = read_request(Path(folder))
        share_cores(request.at_once, request.cores)
        run(request, options, in_worker=True)


def run_for_a_launcher(composed: DictConfig) -> None:
    """Runs a job for a launcher of Hydra, whose worker may run several jobs in sequence."""
    set_up_threads()
    folder = Path(composed.folder)
    request = read_request(folder)
    share_cores(request.at_once, request.cores)
    if not request.scheduled and request.host == platform.node():
        end_with(request.pid)
    options = RunOptions(sweep=Path(request.root))
    with (
        nullcontext() if request.scheduled else _printing_into(folder),
        ignoring_signals(),
        saving_before_a_requeue(options.stop),
    ):
        run(request, options, in_worker=True)


def _print_into(folder: Path) -> None:
    """Redirects the output of this process to a file of the job."""
    with (folder / OUTPUT).open("ab") as file:
        _print_to(file.fileno(), file.fileno())


@contextmanager
def _printing_into(folder: Path) -> Iterator[None]:
    """Within the block, redirects output to a file, because workers share a terminal."""
    saved = [os.dup(1), os.dup(2)]
    try:
        _print_into(folder)
        yield
    finally:
        _print_to(*saved)
        for descriptor in saved:
            os.close(descriptor)


def _print_to(out: int, error: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os.dup2(out, 1)
    os.dup2(error, 2)
