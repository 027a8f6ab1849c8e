"""A `border-train` command with settings: it shows them, or runs their jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.launch.monitor import STALL_TIMEOUT_S, expect, leave_now
from border_cli.launch.startup import collect_from_here
from border_cli.messages import say
from border_cli.words import visible

if TYPE_CHECKING:
    from border_cli.cli.flags import Arguments

# Stands in for training, in tests.
RunJob = Callable[[Job], object]


def answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    """Composes the settings of a command and shows what is asked about them, or trains.

    `run_job` stands in for training.
    """
    with arguments.composing() as (composer, overrides):
        arguments.config_name = composer.config_name  # that of another run, with --from and resume
        if arguments.help:
            # imported late, as all below: each command loads what it needs, a refusal no torch
            from border_cli.config.describe import settings_help

            say(settings_help(composer.job(overrides), overrides).rstrip("\n"))
        elif arguments.cfg == "job" and not arguments.package:
            from border_cli.config.resolved import resolved_yaml

            job = composer.job(overrides)
            text = resolved_yaml(job.config) if arguments.resolve else job.record["config.yaml"]
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        elif arguments.cfg or arguments.info or arguments.hydra_help:
            from border_cli.config.answers import show_answer

            show_answer(arguments.for_hydra(overrides), overrides, composer)
        else:
            command = ("border-train", *typed)
            if arguments.multirun:
                _run_several(composer, overrides, command, run_job)
            else:
                _run_one(composer, replace(composer.job(overrides), command=command), run_job)


def _run_one(composer: Composer, job: Job, run_job: RunJob | None) -> None:
    from border_cli.launch.jobs import check_jobs, look

    check_jobs(composer, [job])
    earlier = look(job)
    if earlier.finished:
        say(_result(job) if job.config.quiet else earlier.message)
        return
    if run_job is not None:
        run_job(job)
        return
    from border_cli.launch.dry_build import dry_built
    from border_cli.launch.job import train_job
    from border_cli.launch.needs import refuse_unmet

    # After the import of torch, which may hold the interpreter lock for longer.
    expect(job.config.trainer.stall_timeout_s)
    if job.config.dry_run:
        from border_cli.cli.dry_run import show

        show([job])
        return
    built = dry_built([job])
    refuse_unmet(built.needs)
    [job] = built.jobs
    collect_from_here()
    outcome = train_job(job, on_hung=lambda each: leave_now(each.exit_status))
    if outcome.threads_left:
        leave_now(outcome.exit_status)
    if outcome.exit_status:
        raise SystemExit(outcome.exit_status)


def _result(job: Job) -> str:
    from border_cli.launch.closing import result_line
    from border_cli.run.status import read_run

    return result_line(job.folder, read_run(job.folder))


def _run_several(
    composer: Composer,
    overrides: list[str],
    command: tuple[str, ...],
    run_job: RunJob | None,
) -> None:
    from border_cli.sweep.plan import OUR_LAUNCHER, planned

    plan = planned(composer, overrides, command)
    timeouts = (job.config.trainer.stall_timeout_s for job in plan.jobs)
    timeout_s = max(timeouts, default=STALL_TIMEOUT_S)
    if plan.config.dry_run:
        from border_cli.cli.dry_run import show
        from border_cli.sweep.skipping import dry_built

        expect(timeout_s)
        if plan.terms.skip_invalid:
            plan, _ = dry_built(plan)
        for each in plan.skipped:
            say(f"job {each.number} ({' '.join(each.overrides)}) is skipped: {each.reason}")
        show(plan.jobs)
    elif run_job is not None:
        for job in plan.jobs:
            run_job(job)
    else:
        if plan.terms.launcher == OUR_LAUNCHER:
            from border_cli.sweep.server import server

            server()
        from border_cli.sweep.command import run_sweep

        expect(timeout_s)
        run_sweep(plan)
