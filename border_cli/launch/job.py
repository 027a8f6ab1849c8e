"""A job as a command runs it: with its log, its header, signals and monitor, to its end.

The same for a job alone, for one of a sweep in the command's own process, and in a worker.
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from border_cli.config.job import Job
from border_cli.core.output import FILE_ONLY
from border_cli.core.stop import StopFlag
from border_cli.errors import (
    ActorHung,
    BorderError,
    CheckpointError,
    Interrupted,
    NotBegun,
    Stalled,
)
from border_cli.launch.closing import print_closing, print_tables, result_line
from border_cli.launch.header import print_header
from border_cli.launch.run import RunOptions, run_job, status_of
from border_cli.launch.summary import Result
from border_cli.messages import complain
from border_cli.process.monitor import leave_now, watching
from border_cli.process.signals import stopping_on_signals
from border_cli.recorder import terminal
from border_cli.run.run_folder import EarlierRun
from border_cli.run.status import DONE, RunInUse
from border_cli.settings.run import Objective

log = logging.getLogger(__name__)

IN_USE = "in use"
LOG_FILE = "border-train.log"
FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The end of one job."""

    status: str = DONE  # done, failed, interrupted, in use
    score: float = math.nan  # the objective
    reason: str = ""
    exit_status: int = 0
    threads_left: bool = False  # a thread hangs: the process cannot end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class JobControl:
    """Who else stops a job."""

    stop: StopFlag = field(default_factory=StopFlag)
    in_worker: bool = False  # a second signal changes nothing: the command decides
    sweep: Path | None = None  # whose stop it must not miss


def train_job(
    job: Job, *, on_hung: Callable[[Outcome], None], control: JobControl | None = None
) -> Outcome:
    """Runs one job to its end, whatever that is; never raises what a run can raise.

    One in whose folder another process runs touches nothing. A learner that hangs never comes back:
    `on_hung` is called by the watchdog's thread, then the process ends.
    """
    outcome, quiet = Outcome(), job.config.quiet
    console, control = terminal.make_console(), control or JobControl()

    def on_hung_learner(stalled: Stalled) -> None:
        try:
            _fail(job, outcome, stalled, console)
            console.show_cursor()  # a live panel hides it
            on_hung(outcome)
        finally:
            leave_now(1)

    log_console = terminal.make_console(stderr=True) if quiet else console
    with job_log(job.folder, log_console, quiet=quiet):
        try:
            outcome.score = _score(job, console, on_hung_learner, control)
        except NotBegun as error:  # the log file is the other run's
            outcome.status = IN_USE if isinstance(error, RunInUse) else "failed"
            outcome.exit_status, outcome.reason = error.exit_status, str(error)
            if not control.in_worker:
                complain("border-train", error)
            return outcome
        except (Exception, SystemExit) as error:  # the latter is the user's own code's
            _fail(job, outcome, error, console)
    if quiet:
        terminal.say(console, result_line(job.folder))
    return outcome


def _score(
    job: Job, console: Console, on_hung_learner: Callable[[Stalled], None], control: JobControl
) -> float:
    """Trains, unless the run is finished, perhaps since the command began; the objective."""
    options = RunOptions(
        console=console,
        stop=control.stop,
        on_prepared=lambda run: print_header(console, run),
        on_hung_learner=on_hung_learner,
        sweep=control.sweep,
    )

    with (
        stopping_on_signals(control.stop, options.save, leaves=not control.in_worker),
        watching(job.folder, job.config.trainer.stall_timeout_s),
    ):
        ended = run_job(job, options)
    if isinstance(ended, EarlierRun):
        log.info("%s", ended.message)
        return ended.score
    text = io.StringIO()
    print_tables(
        Console(file=text, width=100, color_system=None), ended.actor_stats, ended.trainer_stats
    )
    log.info("statistics\n%s", text.getvalue().rstrip(), extra=FILE_ONLY)
    if not job.config.quiet:
        if job.config.statistics:
            print_tables(console, ended.actor_stats, ended.trainer_stats)
        print_closing(console, job.folder)
    return _objective(job.config.objective, ended)


def _objective(objective: Objective, result: Result) -> float:
    stats = result.trainer_stats
    score = stats.best_score if objective == Objective.best else stats.last_score
    return math.nan if score is None else score


def _fail(job: Job, outcome: Outcome, error: BaseException, console: Console) -> None:
    """Notes and logs what ended a job, and prints how to go on from there."""
    outcome.status, outcome.reason = status_of(error)
    outcome.exit_status = error.exit_status if isinstance(error, BorderError) else 1
    outcome.threads_left = isinstance(error, ActorHung | Stalled)
    if isinstance(error, Interrupted):
        log.warning("%s", error)
    elif isinstance(error, Stalled):
        log.error("the run ended: %s", outcome.reason)  # the watchdog has shown the stacks
    elif isinstance(error, BorderError):
        log.error("%s", error)
    else:
        log.error("the run failed: %s", outcome.reason, exc_info=error)
    if not job.config.quiet:
        intact = not isinstance(error, CheckpointError)
        print_closing(console, job.folder, intact=intact)


@contextmanager
def job_log(folder: Path, console: Console, *, quiet: bool) -> Iterator[None]:
    """Within the block the log goes to `console`, above the panel, and to the file of the job.

    All handlers and levels are restored afterwards. The file is opened by the first line, when the
    folder is the job's own.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    raising = logging.raiseExceptions
    ours = terminal.ConsoleHandler(console)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.addFilter(lambda record: not hasattr(record, "file_only"))
    file = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
    file.setFormatter(terminal.MaskedFormatter(FORMAT))
    root.handlers = [ours, file]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log on a full disk must not print a traceback per line
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)
        logging.raiseExceptions = raising
        file.close()
