"""One job: its log, its signals, its run, its last lines and its exit status."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from border_cli.cli.header import doubts, print_header
from border_cli.cli.logs import job_log
from border_cli.cli.monitor import leave, watching
from border_cli.cli.report import print_closing, print_tables, result_line
from border_cli.cli.signals import stopping_on_signals
from border_cli.config.compose import Source
from border_cli.config.resuming import (
    FINISHED,
    Continuation,
    Finished,
    finished,
    refuse_running,
)
from border_cli.config.saved import begin_attempt
from border_cli.core.config import Objective, RunConfig
from border_cli.core.errors import (
    ActorHung,
    BorderError,
    CheckpointError,
    ConfigError,
    Interrupted,
    Stalled,
    reason_of,
)
from border_cli.core.files import write_json
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.launch.summary import Result
from border_cli.launch.training import Launch, Started, launch
from border_cli.recorder import terminal
from border_cli.run.finding import resumable
from border_cli.run.layout import refuse_foreign, set_aside
from border_cli.run.status import now, read_run

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Where a job writes, how it was asked for, and what its settings were read from."""

    run_dir: Path  # absolute; exists
    overrides: list[str]  # of this job, as typed
    sources: list[Source]  # for the header of the run
    resolved: str  # the text of `.hydra/resolved.yaml`, see `saved.write_resolved`
    command: list[str]  # as typed
    job_number: int | None  # None outside sweeps
    import_paths: list[str]  # where the modules of the run were found, see `imports.homes`
    continuation: Continuation | None = None  # None: nothing that could go on was found beforehand
    # What Hydra was told of this attempt, as file and text, where the folder was used before.
    record: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one job ended."""

    folder: Path
    number: int | None
    overrides: list[str]
    status: str  # done, failed, interrupted
    score: float = math.nan  # the objective
    reason: str = ""
    exit_status: int = 0
    threads_left: bool = False  # a thread hangs: the process cannot end by itself
    facts: dict[str, Any] = field(default_factory=dict)  # run.json


def run_job(
    config: RunConfig,
    context: JobContext,
    on_hung: Callable[[Outcome], None] = lambda _: None,
    refused: ConfigError | None = None,
) -> Outcome:
    """Runs one job to its end, whatever that is; never raises what a run can raise.

    One that is `refused` ends before it begins, in a folder that says why.

    A learner that hangs never comes back: `on_hung` is called by the watchdog's thread, then the
    process ends.
    """
    outcome = Outcome(
        folder=context.run_dir,
        number=context.job_number,
        overrides=context.overrides,
        status=FINISHED,
    )
    console = terminal.make_console()

    def leave(stalled: Stalled) -> None:
        try:
            _fail(outcome, stalled, config, console)
            console.show_cursor()  # a live panel hides it
            on_hung(outcome)
        finally:
            leave_now(1)

    log_console = terminal.make_console(stderr=True) if config.quiet else console
    with job_log(log_console, quiet=config.quiet):
        try:
            found = _finished(config, context)
            if found is not None:
                outcome.score = found.score
                log.info("%s", found.message)
            else:
                result = _run(config, context, console, leave, refused)
                outcome.score = _objective(config, result)
                _say_end(console, config, context, result)
        except Exception as error:
            _fail(outcome, error, config, console)
        outcome.facts = read_run(context.run_dir)
    if config.quiet:
        terminal.say(console, result_line(context.run_dir, outcome.facts))
    return outcome


def _run(
    config: RunConfig,
    context: JobContext,
    console: Console,
    on_hung: Callable[[Stalled], None],
    refused: ConfigError | None,
) -> Result:
    refuse_foreign(context.run_dir)  # again: a sweeper may have chosen it only now
    refuse_running(context.run_dir)
    goes_on = context.continuation is not None and bool(resumable(context.run_dir))
    begin = partial(begin_attempt, context.run_dir, context.record, context.resolved)
    if not goes_on:
        set_aside(context.run_dir)
        begin()
    stop, save = StopFlag(), SaveFlag()

    def on_start(started: Started) -> None:
        print_header(console, config, context, started)
        for doubt in doubts(config, context.sources):
            log.warning("%s", doubt)

    def on_second_signal(signum: int) -> None:
        facts = read_run(context.run_dir)
        reason = f"quit immediately: {Interrupted(signum)}"
        facts |= {"status": "interrupted", "exit_reason": reason, "ended": now()}
        with suppress(OSError):
            write_json(context.run_dir / "run.json", facts)

    options = Launch(
        console=console,
        resume=goes_on,
        stop=stop,
        save=save,
        facts={"command": context.command, "import_paths": context.import_paths},
        settings=context.resolved,
        on_start=on_start,
        on_restored=begin,  # nothing refuses it any more
        on_hung_learner=on_hung,
        refused=refused,
    )
    watched = watching(context.run_dir, config.trainer.stall_timeout_s)
    with stopping_on_signals(stop, on_second_signal, save), watched:
        return launch(config, context.run_dir, options)


def _objective(config: RunConfig, result: Result) -> float:
    stats = result.trainer_stats
    if config.objective == Objective.best:
        return stats.best_score
    return stats.last_score if stats.last_score is not None else math.nan


def _say_end(console: Console, config: RunConfig, context: JobContext, result: Result) -> None:
    if config.quiet:
        return
    print_tables(console, config, result.actor_stats, result.trainer_stats)
    print_closing(console, context.run_dir, read_run(context.run_dir))


def _fail(outcome: Outcome, error: Exception, config: RunConfig, console: Console) -> None:
    _say_failure(outcome, error)
    outcome.facts = read_run(outcome.folder)
    if not config.quiet:
        damaged = isinstance(error, CheckpointError)
        print_closing(console, outcome.folder, outcome.facts, intact=not damaged)


def _say_failure(outcome: Outcome, error: Exception) -> None:
    outcome.reason = reason_of(error)
    if isinstance(error, Interrupted):
        outcome.status, outcome.exit_status = "interrupted", error.exit_status
        log.warning("%s", error)
        return
    outcome.status = "failed"
    outcome.exit_status = error.exit_status if isinstance(error, BorderError) else 1
    outcome.threads_left = isinstance(error, ActorHung | Stalled)
    if isinstance(error, Stalled):
        log.error("the run ended: %s", outcome.reason)  # the watchdog has shown the stacks
    elif isinstance(error, BorderError):
        log.error("%s", error)
    else:
        log.error("the run failed: %s", outcome.reason, exc_info=error)


def _finished(config: RunConfig, context: JobContext) -> Finished | None:
    """What a job that is asked to resume finds finished, perhaps since the command began."""
    if context.continuation is None:
        return None
    return finished(context.run_dir, config, context.continuation.trainer)


def leave_now(status: int) -> None:
    """Ends the process although a thread of it hangs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    leave(status)
