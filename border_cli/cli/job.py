"""The jobs of a `border-train` command, in order: composed and checked, tried and counted, then run
by Hydra, one after another.

What a refused command or an answer about settings does not need (Hydra's application, numpy, torch,
rich) is imported by the functions that need it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.cli.monitor import STALL_TIMEOUT_S, expect
from border_cli.cli.startup import collect_from_here, counting_jobs
from border_cli.config.check import checked_jobs
from border_cli.config.compose import Composer, Job, SweepTerms, composing
from border_cli.config.overrides import normalized
from border_cli.core.errors import BorderError, ProbeFailed
from border_cli.core.messages import complain, say
from border_cli.core.words import visible

if TYPE_CHECKING:
    from border_cli.cli.flags import Arguments
    from border_cli.cli.task import Planned
    from border_cli.cli.training_job import JobContext, RunJob
    from border_cli.launch.dry_build import Probes
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.launch.needs import Needs


# Settings on which a dry build does not depend.
NOT_BUILT = (
    *("seed", "name", "imports", "run_dir", "resume", "dry_run", "quiet", "objective"),
    *("trainer", "recorder", "checkpoint", "sweep"),
)


def answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    """Composes the settings of a command and shows what is asked about them, or trains.

    `run_job` stands in for training.
    """
    composed = composing(
        normalized(arguments.overrides),
        config_dirs=arguments.config_dirs,
        config_name=arguments.config_name,
        origin=arguments.origin,
        multirun=arguments.multirun,
    )
    with composed as (composer, overrides):
        arguments = replace(arguments, config_name=composer.config_name)
        if arguments.help:
            from border_cli.config.describe import settings_help

            say(settings_help(composer.job(overrides), overrides).rstrip("\n"))
        elif arguments.cfg == "job" and not arguments.package:
            from border_cli.config.saved import resolved_yaml

            job = composer.job(overrides)
            text = resolved_yaml(job.config) if arguments.resolve else job.as_composed
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        elif arguments.cfg or arguments.info or arguments.hydra_help:
            from border_cli.cli.hydra_app import show_answer

            composer.job(overrides)
            show_answer(arguments.for_hydra(overrides), composer.loader())
        else:
            _train(arguments, composer, overrides, typed, run_job)


def _train(
    arguments: Arguments,
    composer: Composer,
    overrides: list[str],
    typed: list[str],
    run_job: RunJob | None,
) -> None:
    """Runs all jobs of a command and leaves with its status; or shows them, for `dry_run=true`."""
    planned, terms = _planned(composer, overrides, multirun=arguments.multirun)
    if terms is None and _is_finished(planned[0]):
        return
    if _is_dry(composer, planned, overrides):
        return
    command = ["border-train", *typed]
    if terms is not None:
        from border_cli.cli.sweeping import run_command

        run_command(composer, terms, planned, overrides, command, run_job)
        return
    from border_cli.cli.hydra_app import run_one
    from border_cli.cli.task import Task

    if run_job is None:
        from border_cli.launch.needs import refuse_unmet

        refuse_unmet(tried(planned, make_probes()))
        collect_from_here()
        run_job = _run
    task = Task(composer, planned, run_job, command)
    run_one(task, composer.config_name, overrides, composer.loader())


def _planned(
    composer: Composer, overrides: list[str], *, multirun: bool
) -> tuple[list[Planned], SweepTerms | None]:
    """All jobs, composed and checked; one that cannot resume its run refuses the command."""
    with counting_jobs() as progress:
        jobs, terms = checked_jobs(composer, overrides, multirun=multirun, progress=progress)
    from border_cli.cli.task import plan
    from border_cli.run.layout import refuse_foreign

    for folder in [Path(job.folder) for job in jobs]:
        refuse_foreign(folder)
    if terms is not None:  # Hydra and we also write next to the jobs of a sweep
        refuse_foreign(Path(terms.root))
    expect(max((job.config.trainer.stall_timeout_s for job in jobs), default=STALL_TIMEOUT_S))
    if terms is not None and jobs and jobs[0].config.resume is not None:
        from border_cli.cli.sweep import wait_for_locks

        wait_for_locks([Path(job.folder) for job in jobs])
    return [plan(composer, job) for job in jobs], terms


def _is_finished(planned: Planned) -> bool:
    """Reports where the run of a single job has reached its limit: nothing is touched then."""
    finished = planned.found.finished
    if finished is None:
        return False
    message = finished.message
    if planned.job.config.quiet:
        from border_cli.cli.report import result_line
        from border_cli.run.status import read_run

        folder = Path(planned.job.folder)
        message = result_line(folder, read_run(folder))
    say(message)
    return True


def _is_dry(composer: Composer, planned: Sequence[Planned], overrides: list[str]) -> bool:
    """Shows the jobs of a command with `dry_run=true`, which runs none of them."""
    jobs = [each.job for each in planned]
    if jobs and not any(job.config.dry_run for job in jobs):
        return False
    from border_cli.cli import dry_run

    if not dry_run.is_asked_for(composer, jobs, overrides):
        return False
    dry_run.show(planned, make_probes())
    return True


def make_probes() -> Probes:
    """Tries environments; one that hangs ends the command, because nothing can end a thread."""
    from border_cli.cli.training_job import leave_now
    from border_cli.launch.dry_build import Probes

    def on_hung(error: BorderError) -> None:
        complain("border-train", error)
        leave_now(error.exit_status)

    return Probes(on_hung)


def tried(planned: Sequence[Planned], probes: Probes) -> list[Needs]:
    """What the jobs need of memory, counted from dry builds, in which components refuse what only
    they can judge; jobs with the same components share one.

    A job of a sweep whose environment fails as it is tried fails by itself: it needs nothing.
    """
    from border_cli.launch.dry_build import dry_build
    from border_cli.launch.needs import agent_sizes, training_needs

    needs: list[Needs] = []
    made: dict[str, Needs | None] = {}
    names = job_names([each.job for each in planned])
    for (job, _, effective), name in zip(planned, names, strict=True):
        kind = same_build(effective)
        if kind not in made:
            try:
                built = dry_build(effective, probes)
            except ProbeFailed:
                if job.number is None:
                    raise
                built = None
            made[kind] = None
            if built is not None:
                spec, agent = built
                made[kind] = training_needs(effective, spec, agent_sizes(effective, agent))
        like = made[kind]
        if like is not None:
            needs.append(replace(like, name=name))
    return needs


def same_build(effective: EffectiveSettings) -> str:
    """Equal for runs whose dry builds are the same: all that a run is built from but its seed and
    its limits, and without what concerns its folder."""
    config = effective.config
    parts = [getattr(config, each.name) for each in fields(config) if each.name not in NOT_BUILT]
    trainer = (type(config.trainer).__name__, config.trainer.stall_timeout_s)
    return repr((parts, trainer, config.resume is None))


def job_names(jobs: Sequence[Job]) -> list[str]:
    """What to call each job: its number and what is swept."""
    if len(jobs) == 1 and jobs[0].number is None:
        return ["the run"]
    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    return [
        f"job {job.number} ({' '.join(each for each in job.overrides if each not in common)})"
        for job in jobs
    ]


def _run(effective: EffectiveSettings, context: JobContext) -> float:
    """Runs a job alone; the command leaves with its status where it was not done."""
    from border_cli.cli.training_job import leave_now, train_job

    outcome = train_job(effective, context, on_hung=lambda each: leave_now(each.exit_status))
    if outcome.threads_left:
        leave_now(outcome.exit_status)
    if outcome.exit_status:
        raise SystemExit(outcome.exit_status)
    return outcome.score
