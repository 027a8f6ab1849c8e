"""`border-train`: from the command line to checked jobs; `cli.job` runs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from border_cli import __version__
from border_cli.cli.arguments import Arguments, read_arguments
from border_cli.cli.monitor import STALL_TIMEOUT_S, expect, monitored
from border_cli.cli.signals import early_signals
from border_cli.cli.startup import collect_from_here, not_collecting, set_up_threads
from border_cli.core.errors import BorderError, ConfigError, reachable
from border_cli.core.foreign import complain, nothing_imported_from
from border_cli.core.machine import memory_for
from border_cli.core.process_state import keeping_everything
from border_cli.core.words import visible

NO_ROOM = "not enough memory to start"

if TYPE_CHECKING:
    from border_cli.cli.launch import RunJob
    from border_cli.cli.sweep import Jobs
    from border_cli.config.compose import Composer, Job
    from border_cli.config.resuming import Continuation
    from border_cli.launch.dry_build import Probes


def command() -> None:
    """The console script: `main` under its monitor."""
    with monitored("border-train"):
        main()


def main(argv: Sequence[str] | None = None, run_job: RunJob | None = None) -> None:
    """Runs the command; leaves with status 2 when its settings are refused.

    `run_job` stands in for `border_cli.cli.sweep.Jobs`. Hydra and the groups' settings are
    imported only where an answer needs them, torch and gymnasium by the job alone.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    set_up_threads()
    path = list(sys.path)
    with early_signals() as early:
        try:
            with not_collecting(), reachable(ConfigError), memory_for(NO_ROOM, {}, ConfigError):
                _answer(read_arguments(typed), typed, run_job)
        except BorderError as error:
            complain("border-train", error)
            sys.exit(error.exit_status)
        except KeyboardInterrupt:  # before a job had its own handler, or between two jobs
            complain("border-train", "interrupted")
            sys.exit(early.exit_status)
        finally:
            sys.path[:] = path


def _answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    if arguments.version:
        sys.stdout.write(f"border_cli {__version__}\n")
    elif arguments.help and not arguments.overrides:
        from border_cli.cli.overview import overview

        sys.stdout.write(overview(arguments.config_dirs))
    elif arguments.shell_completion:
        from border_cli.cli.complete import complete

        complete(arguments.overrides)
    else:
        _compose(arguments, typed, run_job)


def _compose(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    with ExitStack() as stack:
        for each in arguments.resumed():  # before anything of others is imported
            stack.enter_context(nothing_imported_from(each))
        from border_cli.config.compose import composing
        from border_cli.config.overrides import normalized

        composed = composing(
            normalized(arguments.overrides),
            config_dirs=arguments.config_dirs,
            config_name=arguments.config_name,
            multirun=arguments.multirun,
        )
        composer, overrides = stack.enter_context(composed)
        arguments = replace(arguments, config_name=composer.config_name)
        _respond(arguments, composer, overrides, typed, run_job)


def _respond(
    arguments: Arguments,
    composer: Composer,
    overrides: list[str],
    typed: list[str],
    run_job: RunJob | None,
) -> None:
    """Answers a question about the settings, or trains."""
    if arguments.help:
        from border_cli.config.describe import settings_help

        sys.stdout.write(visible(settings_help(composer.job(overrides), overrides)))
    elif arguments.cfg == "job" and not arguments.package:
        from border_cli.config.saved import resolved_yaml

        job = composer.job(overrides)
        text = resolved_yaml(job.config) if arguments.resolve else job.as_composed
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    elif arguments.cfg or arguments.info or arguments.hydra_help:
        from border_cli.cli.launch import launch
        from border_cli.config.compose import Loader

        composer.job(overrides)
        launch(_never, arguments.for_hydra(overrides), Loader(composer.folders))
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
    from border_cli.config.check import checked_jobs
    from border_cli.run.layout import refuse_foreign

    jobs = checked_jobs(composer, overrides, multirun=arguments.multirun)
    for job in jobs:
        refuse_foreign(Path(job.folder))
        if job.number is not None:  # Hydra and we write beside the jobs of a sweep, too
            refuse_foreign(Path(job.folder).parent)
    expect(max((job.config.trainer.stall_timeout_s for job in jobs), default=STALL_TIMEOUT_S))
    continuations = _continuations(composer, jobs)
    alone = len(jobs) == 1 and jobs[0].number is None
    if alone and _is_finished(jobs[0], continuations[0]):
        return
    if _is_dry(composer, jobs, overrides):
        return
    from border_cli.cli.launch import Task, launch, launch_one
    from border_cli.config.compose import Loader

    runner = run_job or _runner(jobs)
    task = Task(composer, jobs, continuations, runner, command=["border-train", *typed])
    loader = Loader(composer.folders)
    try:
        if alone:
            launch_one(task, composer.config_name, overrides, loader)
        else:
            quiet = bool(jobs) and all(job.config.quiet for job in jobs)
            launch(task, arguments.for_hydra(overrides), loader, quiet=quiet)
    except KeyboardInterrupt:  # between two jobs of a sweep
        if not run_job:
            cast("Jobs", runner).finish(interrupted=True)
        raise
    if not run_job:
        sys.exit(cast("Jobs", runner).finish())


def _continuations(composer: Composer, jobs: list[Job]) -> list[Continuation | None]:
    """Which jobs go on with a run; one that cannot refuses the command."""
    if all(job.config.resume is None for job in jobs):
        return [None] * len(jobs)
    from border_cli.config.resuming import continuation_of

    return [continuation_of(composer, job) for job in jobs]


def _is_finished(job: Job, continuation: Continuation | None) -> bool:
    """Says so where the run of a single job has reached its budget: nothing is touched then."""
    if continuation is None:
        return False
    from border_cli.config.resuming import finished
    from border_cli.run.status import read_run

    folder = Path(job.folder)
    found = finished(folder, job.config, continuation.trainer)
    if found is None:
        return False
    message = found.message
    if job.config.quiet:
        from border_cli.cli.report import result_line

        message = result_line(folder, read_run(folder))
    sys.stdout.write(visible(f"{message}\n"))
    return True


def _is_dry(composer: Composer, jobs: list[Job], overrides: list[str]) -> bool:
    """Shows the jobs of a command with `dry_run=true`, which runs none of them."""
    if jobs and not any(job.config.dry_run for job in jobs):
        return False
    from border_cli.cli import dry_run

    if not dry_run.is_asked_for(composer, jobs, overrides):
        return False
    dry_run.show(jobs, _probes())
    return True


def _runner(jobs: list[Job]) -> Jobs:
    """Loads torch and the environments, and lets them refuse what only they can judge."""
    from border_cli.cli.dry_run import plans_of
    from border_cli.cli.sweep import Jobs
    from border_cli.launch.needs import refuse_unmet

    probes = _probes()
    refuse_unmet(plans_of(jobs, probes))
    collect_from_here()
    return Jobs(probes)


def _probes() -> Probes:
    """Tries environments; one that hangs ends the command, because nothing can end a thread."""
    from border_cli.cli.job import leave_now
    from border_cli.launch.dry_build import Probes

    def leave(error: BorderError) -> None:
        sys.stderr.write(f"border-train: {error}\n")
        leave_now(error.exit_status)

    return Probes(leave)
