"""The jobs of a `border-train` command, in order: composed and checked, tried and counted, then run
by Hydra, one after another.

What a refused command or an answer about settings does not need (Hydra's application, numpy, torch,
rich) is imported by the functions that need it.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from omegaconf import DictConfig, OmegaConf

from border_cli.cli.monitor import STALL_TIMEOUT_S, expect, leave, watching
from border_cli.cli.signals import stopping_on_signals
from border_cli.cli.startup import collect_from_here
from border_cli.config.check import checked_jobs
from border_cli.config.compose import (
    VERSION_BASE,
    Composer,
    Job,
    Loader,
    Source,
    as_typed,
    composing,
)
from border_cli.config.imports import homes
from border_cli.config.overrides import normalized
from border_cli.core.config import Objective
from border_cli.core.errors import (
    ActorHung,
    BorderError,
    CheckpointError,
    ConfigError,
    Interrupted,
    ProbeFailed,
    Stalled,
    reason_of,
)
from border_cli.core.files import SETTINGS, write_json
from border_cli.core.process_state import keeping_everything
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.core.words import visible

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from rich.console import Console

    from border_cli.cli.sweep import Outcome, Sweep
    from border_cli.cli.train import Arguments
    from border_cli.config.resuming import Continuation, Finished
    from border_cli.launch.dry_build import Probes
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.launch.needs import RunNeeds
    from border_cli.launch.summary import Result

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
    continuation: Continuation | None = None  # None: the command began without a run to resume
    # What Hydra writes of this attempt, as file and text, where the folder was used before.
    record: Mapping[str, str] = field(default_factory=dict)


RunJob: TypeAlias = "Callable[[EffectiveSettings, JobContext], float]"


class Planned(NamedTuple):
    """A checked job."""

    job: Job
    continuation: Continuation | None
    effective: EffectiveSettings


def answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    """Composes the settings of a command and shows what is asked about them, or trains.

    `run_job` stands in for training.
    """
    composed = composing(
        normalized(arguments.overrides),
        config_dirs=arguments.config_dirs,
        config_name=arguments.config_name,
        multirun=arguments.multirun,
    )
    with composed as (composer, overrides):
        arguments = replace(arguments, config_name=composer.config_name)
        if arguments.help:
            from border_cli.config.describe import settings_help

            sys.stdout.write(visible(settings_help(composer.job(overrides), overrides)))
        elif arguments.cfg == "job" and not arguments.package:
            from border_cli.config.saved import resolved_yaml

            job = composer.job(overrides)
            text = resolved_yaml(job.config) if arguments.resolve else job.as_composed
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        elif arguments.cfg or arguments.info or arguments.hydra_help:
            composer.job(overrides)
            hydra_app(_never, arguments.for_hydra(overrides), composer.loader())
        else:
            with keeping_everything():
                _train(arguments, composer, overrides, typed, run_job)


def _never(composed: object) -> float:
    raise AssertionError(f"a question about the settings must not run a job: {composed}")


def _train(
    arguments: Arguments,
    composer: Composer,
    overrides: list[str],
    typed: list[str],
    run_job: RunJob | None,
) -> None:
    """Runs all jobs of a command and leaves with its status; or shows them, for `dry_run=true`."""
    planned = _planned(composer, overrides, multirun=arguments.multirun)
    alone = len(planned) == 1 and planned[0].job.number is None
    if alone and _is_finished(planned[0]):
        return
    if _is_dry(composer, planned, overrides):
        return
    command = ["border-train", *typed]
    sweep = None
    if run_job is None:
        from border_cli.cli.sweep import Sweep
        from border_cli.launch.needs import refuse_unmet

        probes = _probes()
        refuse_unmet(_tried(planned, probes))
        collect_from_here()
        sweep = None if alone else Sweep(command)
        run_job = _runner(probes, sweep)
    task = Task(composer, planned, run_job, command)
    loader = composer.loader()
    try:
        if alone:
            run_one(task, composer.config_name, overrides, loader)
        else:
            quiet = bool(planned) and all(each.job.config.quiet for each in planned)
            hydra_app(task, arguments.for_hydra(overrides), loader, quiet=quiet)
    except KeyboardInterrupt:  # between two jobs of a sweep
        if sweep is not None:
            sweep.finish(interrupted=True)
        raise
    if sweep is not None:
        sys.exit(sweep.finish())


def _planned(composer: Composer, overrides: list[str], *, multirun: bool) -> list[Planned]:
    """All jobs, composed and checked; one that cannot resume its run refuses the command."""
    jobs = checked_jobs(composer, overrides, multirun=multirun)
    from border_cli.run.layout import refuse_foreign

    for job in jobs:
        refuse_foreign(Path(job.folder))
        if job.number is not None:  # Hydra and we also write next to the jobs of a sweep
            refuse_foreign(Path(job.folder).parent)
    expect(max((job.config.trainer.stall_timeout_s for job in jobs), default=STALL_TIMEOUT_S))
    return [_plan(composer, job) for job in jobs]


def _plan(composer: Composer, job: Job) -> Planned:
    from border_cli.launch.effective import effective_settings

    continuation = None
    if job.config.resume is not None:
        from border_cli.config.resuming import continuation_of

        continuation = continuation_of(composer, job)
    return Planned(job, continuation, effective_settings(job.config))


def _is_finished(planned: Planned) -> bool:
    """Reports where the run of a single job has reached its limit: nothing is touched then."""
    if planned.continuation is None:
        return False
    from border_cli.config.resuming import finished

    job, folder = planned.job, Path(planned.job.folder)
    found = finished(folder, job.config, planned.continuation.trainer)
    if found is None:
        return False
    message = found.message
    if job.config.quiet:
        from border_cli.cli.report import result_line
        from border_cli.run.status import read_run

        message = result_line(folder, read_run(folder))
    sys.stdout.write(visible(f"{message}\n"))
    return True


def _is_dry(composer: Composer, planned: Sequence[Planned], overrides: list[str]) -> bool:
    """Shows the jobs of a command with `dry_run=true`, which runs none of them."""
    jobs = [each.job for each in planned]
    if jobs and not any(job.config.dry_run for job in jobs):
        return False
    from border_cli.cli import dry_run

    if not dry_run.is_asked_for(composer, jobs, overrides):
        return False
    dry_run.show(planned, _probes())
    return True


def _probes() -> Probes:
    """Tries environments; one that hangs ends the command, because nothing can end a thread."""
    from border_cli.launch.dry_build import Probes

    def on_hung(error: BorderError) -> None:
        sys.stderr.write(f"border-train: {error}\n")
        leave_now(error.exit_status)

    return Probes(on_hung)


def _tried(planned: Sequence[Planned], probes: Probes) -> list[RunNeeds]:
    """What the jobs need, counted from a dry build of each, in which components refuse what only
    they can judge.

    A job of a sweep whose environment fails as it is tried reports that itself: it needs nothing.
    """
    from border_cli.launch.dry_build import dry_build
    from border_cli.launch.needs import run_needs

    needs = []
    names = job_names([each.job for each in planned])
    for (job, _, effective), name in zip(planned, names, strict=True):
        try:
            built = dry_build(effective, probes)
        except ProbeFailed:
            if job.number is None:
                raise
            continue
        if built is not None:
            needs.append(run_needs(effective, Path(job.folder).absolute(), built, name))
    return needs


def job_names(jobs: Sequence[Job]) -> list[str]:
    """What to call each job: its number and what is swept."""
    if len(jobs) == 1 and jobs[0].number is None:
        return ["the run"]
    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    return [
        f"job {job.number} ({' '.join(each for each in job.overrides if each not in common)})"
        for job in jobs
    ]


def _runner(probes: Probes, sweep: Sweep | None) -> RunJob:
    """Runs each job that it is called with; one that fails leaves the others alone.

    The objective of a failed job is NaN. An interruption ends the sweep after its job.
    """

    def ended(outcome: Outcome, effective: EffectiveSettings) -> None:
        """Leaves the command where no other job can follow."""
        if sweep is not None:
            sweep.add(outcome, effective.config)
        last = sweep is None or outcome.status == "interrupted"
        if not outcome.threads_left and not (last and outcome.exit_status):
            return
        if sweep is not None:
            sweep.finish()
        if outcome.threads_left:
            leave_now(outcome.exit_status)
        raise SystemExit(outcome.exit_status)

    def run(effective: EffectiveSettings, context: JobContext) -> float:
        def on_hung(outcome: Outcome) -> None:
            ended(outcome, effective)

        outcome = train_job(
            effective, context, on_hung=on_hung, refused=_refusal(probes, effective)
        )
        ended(outcome, effective)
        return outcome.score

    return run


def _refusal(probes: Probes, effective: EffectiveSettings) -> ConfigError | None:
    """Why the environments of a job cannot be used; they were tried before, unless its sweeper
    invented it."""
    try:
        probes.training(effective)
        probes.evaluation(effective)
    except ConfigError as error:
        return error
    return None


class Task:
    """What Hydra calls for each job: the checked settings go to `run_job`, its score to Hydra.

    A job that was not checked before, because its sweeper invented it, is composed now.
    """

    def __init__(
        self, composer: Composer, planned: Sequence[Planned], run_job: RunJob, command: list[str]
    ) -> None:
        self._composer = composer
        self._planned = {(each.job.overrides, each.job.number): each for each in planned}
        self._run_job = run_job
        self._command = command

    def __call__(self, composed: DictConfig) -> float:
        from hydra.core.hydra_config import HydraConfig

        from border_cli.config.saved import modules_of, resolved_yaml

        hydra = HydraConfig.get()
        overrides = as_typed(hydra.overrides.task)
        number = None if OmegaConf.is_missing(hydra.job, "num") else hydra.job.num
        planned = self._planned.get((tuple(overrides), number))
        if planned is None:
            job = self._composer.job([*as_typed(hydra.overrides.hydra), *overrides], number)
            planned = _plan(self._composer, job)
        job, run_dir = planned.job, Path(hydra.runtime.output_dir)
        context = JobContext(
            run_dir=run_dir,
            overrides=overrides,
            sources=job.sources,
            resolved=resolved_yaml(job.config),
            command=self._command,
            job_number=number,
            import_paths=homes(modules_of(job.config)),
            continuation=planned.continuation,
            record=_record(composed, hydra) if (run_dir / SETTINGS).exists() else {},
        )
        return self._run_job(planned.effective, context)


def _record(composed: DictConfig, hydra: Any) -> dict[str, str]:
    """What Hydra itself writes into `.hydra` of a new folder."""
    return {
        "config.yaml": OmegaConf.to_yaml(composed),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
        "overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
    }


def run_one(
    task: Callable[[DictConfig], float], config_name: str, overrides: list[str], loader: Loader
) -> None:
    """Runs one job as Hydra's entry point does, which would compose it once more for its mode."""
    from hydra._internal.utils import run_and_report

    with _app(loader) as app:
        run_and_report(lambda: app.run(config_name, task, overrides))


def hydra_app(
    task: Callable[[DictConfig], float], argv: list[str], loader: Loader, *, quiet: bool = False
) -> None:
    """Does what Hydra's own entry point does with this command line.

    `quiet`: its launchers and sweepers log warnings and errors only.
    """
    from hydra._internal.utils import _run_app, get_args_parser, run_and_report

    parser = get_args_parser()
    args = parser.parse_args(argv)
    what = {"config_name": args.config_name, "overrides": args.overrides}
    with _app(loader) as app:
        if args.hydra_help:
            app.hydra_help(args.config_name, parser, args)
        elif args.cfg:
            how = {"cfg_type": args.cfg, "package": args.package, "resolve": args.resolve}
            run_and_report(lambda: app.show_cfg(**what, **how))
        elif args.info:
            app.show_info(args.info, **what)
        else:
            mode = app.get_mode(**what)
            run = not args.multirun
            with _quiet_hydra() if quiet else nullcontext():
                _run_app(run, args.multirun, mode, app, args.config_name, task, args.overrides)


@contextmanager
def _app(loader: Loader) -> Iterator[Hydra]:
    import hydra
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra

    hydra.version.setbase(VERSION_BASE)
    app = Hydra("border-train", loader)
    GlobalHydra.instance().initialize(app)
    try:
        with _logging_as_before():
            yield app
    finally:
        GlobalHydra.instance().clear()


@contextmanager
def _quiet_hydra() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("hydra", "hydra_plugins")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


@contextmanager
def _logging_as_before() -> Iterator[None]:
    """Hydra sets the root logger up for each job and leaves it so, with the job's file open."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers = handlers
        root.setLevel(level)


def train_job(
    effective: EffectiveSettings,
    context: JobContext,
    *,
    on_hung: Callable[[Outcome], None],
    refused: ConfigError | None,
) -> Outcome:
    """Runs one job to its end, whatever that is; never raises what a run can raise.

    One that is `refused` ends before it begins, in a folder that says why. A learner that hangs
    never comes back: `on_hung` is called by the watchdog's thread, then the process ends.
    """
    from border_cli.cli.logs import job_log
    from border_cli.cli.report import print_closing, print_tables, result_line
    from border_cli.cli.sweep import Outcome
    from border_cli.config.resuming import FINISHED
    from border_cli.recorder import terminal
    from border_cli.run.status import read_run

    outcome = Outcome(
        folder=context.run_dir,
        number=context.job_number,
        overrides=context.overrides,
        status=FINISHED,
    )
    config, console = effective.config, terminal.make_console()

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
            found = _finished(effective, context)
            if found is not None:
                outcome.score = found.score
                log.info("%s", found.message)
            else:
                result = _run(effective, context, console, on_hung_learner, refused)
                outcome.score = _objective(config.objective, result)
                if not config.quiet:
                    print_tables(console, effective, result.actor_stats, result.trainer_stats)
                    print_closing(console, context.run_dir, read_run(context.run_dir))
        except Exception as error:
            _fail(outcome, error, console, quiet=config.quiet)
        outcome.facts = read_run(context.run_dir)
    if config.quiet:
        terminal.say(console, result_line(context.run_dir, outcome.facts))
    return outcome


def _finished(effective: EffectiveSettings, context: JobContext) -> Finished | None:
    """What a job that is asked to resume finds finished, perhaps since the command began."""
    if context.continuation is None:
        return None
    from border_cli.config.resuming import finished

    return finished(context.run_dir, effective.config, context.continuation.trainer)


def _run(
    effective: EffectiveSettings,
    context: JobContext,
    console: Console,
    on_hung_learner: Callable[[Stalled], None],
    refused: ConfigError | None,
) -> Result:
    from border_cli.cli.report import doubts, print_header
    from border_cli.config.resuming import refuse_running
    from border_cli.config.saved import begin_attempt
    from border_cli.launch.training import RunOptions, training_run
    from border_cli.run.finding import resumable
    from border_cli.run.layout import refuse_foreign, set_aside

    run_dir = context.run_dir
    refuse_foreign(run_dir)  # again: a sweeper may have chosen it only now
    refuse_running(run_dir)
    resumes = context.continuation is not None and bool(resumable(run_dir))
    if not resumes:
        set_aside(run_dir)
        begin_attempt(run_dir, context.record, context.resolved)
    stop, save = StopFlag(), SaveFlag()
    options = RunOptions(
        console=console,
        resume=resumes,
        stop=stop,
        save=save,
        run_json={"command": context.command, "import_paths": context.import_paths},
        settings=context.resolved,
        choices={each.group: each.choice for each in context.sources},
        on_hung_learner=on_hung_learner,
    )

    def on_second_signal(signum: int) -> None:
        _note_quit(run_dir, signum)

    watched = watching(run_dir, effective.config.trainer.stall_timeout_s)
    with (
        stopping_on_signals(stop, on_second_signal, save),
        watched,
        training_run(effective, run_dir, options) as run,
    ):
        if refused is not None:
            raise refused
        started = run.prepare()
        print_header(console, effective, context, started)
        for doubt in doubts(effective, context.sources):
            log.warning("%s", doubt)
        run.build()
        if resumes:  # nothing refuses it any more
            begin_attempt(run_dir, context.record, context.resolved)
        return run.train()


def _note_quit(run_dir: Path, signum: int) -> None:
    from border_cli.run.status import now, read_run

    facts = read_run(run_dir)
    reason = f"quit immediately: {Interrupted(signum)}"
    facts |= {"status": "interrupted", "exit_reason": reason, "ended": now()}
    with suppress(OSError):
        write_json(run_dir / "run.json", facts)


def _objective(objective: Objective, result: Result) -> float:
    stats = result.trainer_stats
    if objective == Objective.best:
        return stats.best_score
    return stats.last_score if stats.last_score is not None else math.nan


def _fail(outcome: Outcome, error: Exception, console: Console, *, quiet: bool) -> None:
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
