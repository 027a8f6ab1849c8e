"""`border-train`: parses the command line, then shows settings or checks and runs jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from border_cli import __version__
from border_cli.cli.flags import Arguments, read_arguments
from border_cli.errors import ConfigError
from border_cli.messages import say
from border_cli.process.monitor import monitored, set_stall_timeout
from border_cli.process.startup import (
    command_frame,
    paused_garbage_collection,
    resume_garbage_collection,
)
from border_cli.words import escape_controls

if TYPE_CHECKING:
    from border_cli.config.compose import Composer
    from border_cli.config.job import Job
    from border_cli.sweep.plan import Plan


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command. Exits with status 2 if the settings are refused.

    Hydra and the settings of groups are imported only when needed, torch and gymnasium only by
    jobs.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    with command_frame("border-train", ConfigError), paused_garbage_collection():
        _dispatch(read_arguments(typed), ("border-train", *typed))


def _dispatch(arguments: Arguments, command: Sequence[str]) -> None:
    if arguments.version:
        sys.stdout.write(f"border_cli {__version__}\n")
    elif arguments.help and not arguments.overrides:
        # imported late, like all imports below: each command loads only what it needs
        from border_cli.cli.overview import overview

        sys.stdout.write(overview(arguments.config_dirs))
    elif arguments.shell_completion:
        from border_cli.cli.complete import complete

        complete(arguments.overrides)
    else:
        with arguments.composing() as (composer, overrides):
            if arguments.shows_settings:
                _show_settings(arguments, composer, overrides)
            elif arguments.multirun:
                from border_cli.sweep.plan import plan_sweep

                run_several(plan_sweep(composer, overrides, command))
            else:
                _run_one(composer, replace(composer.job(overrides), command=tuple(command)))


def _show_settings(arguments: Arguments, composer: Composer, overrides: list[str]) -> None:
    arguments.config_name = composer.config_name  # name from the other run, with --from and resume
    if arguments.help:
        from border_cli.config.describe import settings_help

        say(settings_help(composer.job(overrides), overrides).rstrip("\n"))
    elif arguments.cfg == "job" and not arguments.package:
        from border_cli.config.job import resolved_yaml

        job = composer.job(overrides)
        text = resolved_yaml(job.config) if arguments.resolve else job.record["config.yaml"]
        sys.stdout.write(escape_controls(text) if sys.stdout.isatty() else text)
    else:
        from border_cli.config.compose import show_hydra_output

        show_hydra_output(arguments.hydra_arguments(overrides), overrides, composer)


def _run_one(composer: Composer, job: Job) -> None:
    from border_cli.checks.check import check_jobs

    earlier_run = check_jobs([job], composer)[job.folder]
    if not earlier_run.finished:
        run_one(job)
    elif job.config.quiet:
        from border_cli.launch.closing import result_line

        say(result_line(job.folder))
    else:
        say(earlier_run.message)


def run_one(job: Job) -> None:
    """Runs a checked job, or shows its dry run."""
    from border_cli.checks.dry_build import dry_build_jobs
    from border_cli.launch.job import train_job

    # Call this after the import of torch, which may hold the interpreter lock beyond the timeout.
    set_stall_timeout(job.config.trainer.stall_timeout_s)
    if job.config.dry_run:
        from border_cli.cli.dry_run import show

        show([job])
        return
    [job] = dry_build_jobs([job]).jobs
    resume_garbage_collection()
    if status := train_job(job).exit_status:
        raise SystemExit(status)


def run_several(plan: Plan) -> None:
    """Runs the jobs of a sweep, or shows their dry runs."""
    if plan.config.dry_run:
        from border_cli.cli.dry_run import show

        set_stall_timeout(plan.stall_timeout_s)
        if plan.terms.skip_invalid:
            plan, _ = plan.dry_build()
        for job in plan.skipped:
            say(f"job {job.number} ({' '.join(job.overrides)}) is skipped: {job.reason}")
        show(plan.jobs)
        return
    from border_cli.sweep.plan import OUR_LAUNCHER

    if plan.terms.launcher == OUR_LAUNCHER:
        from border_cli.sweep.server import start_server

        start_server()
    from border_cli.sweep.command import run_sweep

    set_stall_timeout(plan.stall_timeout_s)
    run_sweep(plan)


command = monitored("border-train")(main)  # entry point of the console script
