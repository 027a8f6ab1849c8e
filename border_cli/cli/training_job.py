"""One training job of a command: from its checked settings to its end, whatever that is.

The same for a job alone, for one of a sweep in the command's own process, and in a worker.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from border_cli.cli.monitor import leave, watching
from border_cli.cli.signals import stopping_on_signals
from border_cli.config.job import Source
from border_cli.core.config import Objective
from border_cli.core.errors import (
    ActorHung,
    BorderError,
    CheckpointError,
    Interrupted,
    Stalled,
    reason_of,
)
from border_cli.core.messages import complain
from border_cli.core.stop import SaveFlag, StopFlag

if TYPE_CHECKING:
    from rich.console import Console

    from border_cli.config.resuming import Attempt
    from border_cli.core.output import Recorders
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.launch.summary import Result

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Where a job writes, how it was asked for, and what its settings were read from."""

    run_dir: Path  # absolute; exists
    overrides: list[str]  # of this job, as typed
    sources: list[Source]  # for the header of the run
    command: list[str]  # as typed
    job_number: int | None  # None outside sweeps
    import_paths: list[str]  # where the modules of the run were found, see `imports.homes`
    trust: bool  # see `load_policy`
    record: Mapping[str, str]  # how this attempt was asked for, as files of `.hydra` and texts


# Trains; returns how the job ended, or as a stand-in of tests its score.
RunJob: TypeAlias = "Callable[[EffectiveSettings, JobContext], Outcome | float]"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobControl:
    """Who else stops a job, and who watches it."""

    stop: StopFlag = field(default_factory=StopFlag)
    save: SaveFlag = field(default_factory=SaveFlag)
    recorders: Recorders = ()  # besides those of its settings
    in_worker: bool = False  # a second signal changes nothing: the command decides
    sweep: Path | None = None  # whose stop it must not miss


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one job ended."""

    folder: Path
    number: int | None
    overrides: list[str]
    status: str  # done, failed, interrupted, in use
    score: float = math.nan  # the objective
    reason: str = ""
    exit_status: int = 0
    threads_left: bool = False  # a thread hangs: the process cannot end by itself
    facts: dict[str, Any] = field(default_factory=dict)  # run.json


def train_job(
    effective: EffectiveSettings,
    context: JobContext,
    *,
    on_hung: Callable[[Outcome], None],
    control: JobControl | None = None,
) -> Outcome:
    """Runs one job to its end, whatever that is; never raises what a run can raise.

    One in whose folder another process runs touches nothing. A learner that hangs never comes back:
    `on_hung` is called by the watchdog's thread, then the process ends.
    """
    from border_cli.cli.logs import job_log
    from border_cli.cli.report import result_line
    from border_cli.config.resuming import FINISHED
    from border_cli.recorder import terminal
    from border_cli.run.status import RunInUse, read_run

    outcome = Outcome(
        folder=context.run_dir,
        number=context.job_number,
        overrides=context.overrides,
        status=FINISHED,
    )
    config, console = effective.config, terminal.make_console()
    control = control or JobControl()

    def on_hung_learner(stalled: Stalled) -> None:
        try:
            _fail(outcome, stalled, console, quiet=config.quiet)
            console.show_cursor()  # a live panel hides it
            on_hung(outcome)
        finally:
            leave_now(1)

    log_console = terminal.make_console(stderr=True) if config.quiet else console
    with job_log(log_console, quiet=config.quiet):
        try:
            outcome.score = _score(effective, context, console, on_hung_learner, control)
        except RunInUse as error:  # the log file is that process's own
            outcome.status, outcome.exit_status = "in use", error.exit_status
            outcome.reason = str(error)
            if not control.in_worker:
                complain("border-train", error)
            return outcome
        except (Exception, SystemExit) as error:  # the latter is the user's own code's
            _fail(outcome, error, console, quiet=config.quiet)
        outcome.facts = read_run(context.run_dir)
    if config.quiet:
        terminal.say(console, result_line(context.run_dir, outcome.facts))
    return outcome


def _score(
    effective: EffectiveSettings,
    context: JobContext,
    console: Console,
    on_hung_learner: Callable[[Stalled], None],
    control: JobControl,
) -> float:
    """Trains, unless the run is finished, perhaps since the command began; the objective."""
    from border_cli.cli.report import print_closing, print_tables
    from border_cli.config.resuming import attempt
    from border_cli.run.status import read_run

    config, run_dir = effective.config, context.run_dir
    with attempt(run_dir, config, context.record, trust=context.trust) as begun:
        finished = begun.found.finished
        if finished is not None:
            log.info("%s", finished.message)
            return finished.score
        result = _run(effective, context, console, on_hung_learner, control, begun)
    if not config.quiet:
        print_tables(console, effective, result.actor_stats, result.trainer_stats)
        print_closing(console, run_dir, read_run(run_dir))
    return _objective(config.objective, result)


def _run(
    effective: EffectiveSettings,
    context: JobContext,
    console: Console,
    on_hung_learner: Callable[[Stalled], None],
    control: JobControl,
    begun: Attempt,
) -> Result:
    from border_cli.cli.report import doubts, print_header
    from border_cli.launch.training import RunOptions, training_run
    from border_cli.run.status import end_from_outside

    run_dir = context.run_dir
    options = RunOptions(
        console=console,
        resume=begun.found.resumes,
        stop=control.stop,
        save=control.save,
        recorders_besides=control.recorders,
        run_json={"command": context.command, "import_paths": context.import_paths},
        on_hung_learner=on_hung_learner,
        sweep=control.sweep,
    )

    def on_second_signal(signum: int) -> None:
        reason = f"quit immediately: {Interrupted(signum)}"
        with suppress(OSError):
            end_from_outside(run_dir, os.getpid(), "interrupted", reason, stuck=True)

    watched = watching(run_dir, effective.config.trainer.stall_timeout_s)
    with (
        stopping_on_signals(
            control.stop, None if control.in_worker else on_second_signal, control.save
        ),
        watched,
        training_run(effective, run_dir, options, begun.lock) as run,
    ):
        started = run.prepare()
        print_header(console, effective, context, started, begun.found.changed)
        for doubt in doubts(effective):
            log.warning("%s", doubt)
        run.build()
        begun.confirm()
        return run.train()


def _objective(objective: Objective, result: Result) -> float:
    stats = result.trainer_stats
    if objective == Objective.best:
        return stats.best_score
    return stats.last_score if stats.last_score is not None else math.nan


def _fail(outcome: Outcome, error: BaseException, console: Console, *, quiet: bool) -> None:
    """Notes and logs what ended a job, and prints how to go on from there."""
    from border_cli.cli.report import print_closing
    from border_cli.run.status import read_run

    outcome.reason = reason_of(error)
    if isinstance(error, Interrupted):
        outcome.status, outcome.exit_status = "interrupted", error.exit_status
        log.warning("%s", error)
    else:
        outcome.status = "failed"
        outcome.exit_status = error.exit_status if isinstance(error, BorderError) else 1
        outcome.threads_left = isinstance(error, ActorHung | Stalled)
        if isinstance(error, Stalled):
            log.error("the run ended: %s", outcome.reason)  # the watchdog has shown the stacks
        elif isinstance(error, BorderError):
            log.error("%s", error)
        else:
            log.error("the run failed: %s", outcome.reason, exc_info=error)
    outcome.facts = read_run(outcome.folder)
    if not quiet:
        intact = not isinstance(error, CheckpointError)
        print_closing(console, outcome.folder, outcome.facts, intact=intact)


def leave_now(status: int) -> None:
    """Ends the process although a thread of it hangs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    leave(status)
