"""Runs a job to its end, including its log, header, signal handlers and monitor.

Used for a single job, for a job of a sweep in the command's own process, and in a worker.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from border_cli.config.job import Job
from border_cli.core.output import FILE_ONLY
from border_cli.errors import (
    ActorHung,
    BorderError,
    CheckpointError,
    Interrupted,
    NotBegun,
    Stalled,
)
from border_cli.launch.closing import print_summary, print_tables, result_line
from border_cli.launch.header import print_header
from border_cli.launch.run import RunOptions, run_job, status_of
from border_cli.messages import complain
from border_cli.process.monitor import flush_and_exit, watching
from border_cli.process.signals import stopping_on_signals
from border_cli.recorder import terminal
from border_cli.run.lock import RunInUse
from border_cli.run.run_folder import EarlierRun
from border_cli.run.status import DONE

log = logging.getLogger(__name__)

IN_USE = "in use"
LOG_FILE = "border-train.log"
FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a job ended."""

    status: str = DONE  # done, failed, interrupted, in use, not started
    reason: str = ""
    exit_status: int = 0


def train_job(
    job: Job,
    options: RunOptions | None = None,
    *,
    in_worker: bool = False,
    before_leaving: Callable[[], object] = lambda: None,
) -> Outcome:
    """Runs one job to its end; never raises an error of the run.

    If another process is running in the folder of the job, nothing is changed. If a thread hangs,
    the process exits here after calling `before_leaving`; a worker exits only if the learner hangs.
    In a worker a second signal has no effect, because the command decides.
    """
    outcome, hangs = Outcome(), False
    console, options = terminal.make_console(), options or RunOptions()

    def leave(stalled: Stalled | None = None) -> None:
        try:
            if stalled is not None:
                _fail(job, outcome, stalled, console)
            console.show_cursor()  # a live panel hides the cursor
            before_leaving()
        finally:
            flush_and_exit(outcome.exit_status or 1)

    options.console, options.on_hung_learner = console, leave
    options.on_prepared = lambda run: print_header(console, run)
    with job_log(job.folder, console, quiet=job.config.quiet):
        try:
            _train(job, options, leaves=not in_worker)
        except NotBegun as error:  # the log file belongs to the other run
            outcome.status = IN_USE if isinstance(error, RunInUse) else "failed"
            outcome.exit_status, outcome.reason = error.exit_status, str(error)
            if not in_worker:
                complain("border-train", error)
            return outcome
        except (Exception, SystemExit) as error:  # SystemExit comes from user code
            _fail(job, outcome, error, console)
            hangs = isinstance(error, ActorHung | Stalled)
    if job.config.quiet:
        terminal.say(console, result_line(job.folder))
    if hangs and not in_worker:
        leave()
    return outcome


def _train(job: Job, options: RunOptions, *, leaves: bool) -> None:
    """Trains, unless the run is finished. It may have finished since the command started."""
    with (
        stopping_on_signals(options.stop, options.save, leaves=leaves),
        watching(job.folder, job.config.trainer.stall_timeout_s),
    ):
        result = run_job(job, options)
    if isinstance(result, EarlierRun):
        log.info("%s", result.message)
        return
    text = io.StringIO()
    print_tables(
        Console(file=text, width=100, color_system=None), result.actor_stats, result.trainer_stats
    )
    log.info("statistics\n%s", text.getvalue().rstrip(), extra=FILE_ONLY)
    if not job.config.quiet:
        if job.config.statistics:
            print_tables(options.console, result.actor_stats, result.trainer_stats)
        print_summary(options.console, job.folder)


def _fail(job: Job, outcome: Outcome, error: BaseException, console: Console) -> None:
    """Records and logs why a job ended, and prints how to resume it."""
    outcome.status, outcome.reason = status_of(error)
    outcome.exit_status = error.exit_status if isinstance(error, BorderError) else 1
    if isinstance(error, Interrupted):
        log.warning("%s", error)
    elif isinstance(error, Stalled):
        log.error("the run ended: %s", outcome.reason)  # the watchdog has printed stack traces
    elif isinstance(error, BorderError):
        log.error("%s", error)
    else:
        log.error("the run failed: %s", outcome.reason, exc_info=error)
    if not job.config.quiet:
        intact = not isinstance(error, CheckpointError)
        print_summary(console, job.folder, intact=intact)


@contextmanager
def job_log(folder: Path, console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block, log records go to `console` above the panel, or to stderr if quiet, and to
    the log file of the job.

    Restores all handlers and levels afterwards. The file is created by the first record, when the
    folder already belongs to the job.
    """
    root = logging.getLogger()
    previous, level = list(root.handlers), root.level
    raised = logging.raiseExceptions
    console_handler = terminal.ConsoleHandler(
        terminal.make_console(stderr=True) if quiet else console
    )
    console_handler.setLevel(logging.WARNING if quiet else logging.INFO)
    console_handler.addFilter(lambda record: not hasattr(record, "file_only"))
    file = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
    file.setFormatter(terminal.MaskedFormatter(FORMAT))
    root.handlers = [console_handler, file]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        root.handlers = previous
        root.setLevel(level)
        logging.raiseExceptions = raised
        file.close()
