"""A job of a sweep in the process that runs it, whichever launcher calls it."""

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
    leaving_to_the_command,
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

OUTPUT = "output.log"  # what a job prints whose process is not the command's


def run(request: Request, options: RunOptions | None = None, **how: Any) -> Outcome:
    """Runs a job to its end, see `train_job`. No job begins once its sweep is stopped."""
    job, root = request.job, Path(request.root)
    stopped = read_stop(root)
    if stopped is not None:
        return Outcome(status="not started", reason=f"not started: {stopped}")
    outcome = train_job(job, options, **how)
    if outcome.status == "failed" and job.config.sweep.on_error == OnError.stop:
        write_stop(root, f"job {job.number} failed (sweep.on_error=stop)")
    return outcome


def run_in_a_child(folder: str, _: Pipe) -> None:
    """A process of ours, here or on a node of a cluster: one job, then it ends."""
    _print_into(Path(folder))
    options = RunOptions()
    # Signals that come before the run listens to them count, too.
    with monitored("border-train"), stopping_on_signals(options.stop, SaveFlag(), leaves=False):
        set_up_threads()
        request = read_request(Path(folder))
        share_cores(request.at_once, request.cores)
        run(request, options, in_worker=True)


def run_for_a_launcher(composed: DictConfig) -> None:
    """The task of Hydra's launchers, in a worker that may run several jobs one after another."""
    set_up_threads()
    folder = Path(composed.folder)
    request = read_request(folder)
    share_cores(request.at_once, request.cores)
    if not request.scheduled and request.host == platform.node():
        end_with(request.pid)
    options = RunOptions(sweep=Path(request.root))
    with (
        nullcontext() if request.scheduled else _printing_into(folder),
        leaving_to_the_command(),
        saving_before_a_requeue(options.stop),
    ):
        run(request, options, in_worker=True)


def _print_into(folder: Path) -> None:
    """Sends all that this process prints to a file of the job from now on."""
    with (folder / OUTPUT).open("ab") as file:
        _print_to(file.fileno(), file.fileno())


@contextmanager
def _printing_into(folder: Path) -> Iterator[None]:
    """Within the block what this process prints goes to a file, for workers share a terminal."""
    before = [os.dup(1), os.dup(2)]
    try:
        _print_into(folder)
        yield
    finally:
        _print_to(*before)
        for each in before:
            os.close(each)


def _print_to(out: int, error: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os.dup2(out, 1)
    os.dup2(error, 2)
