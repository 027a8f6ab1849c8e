"""`dry_run=true`: shows the settings and memory needs of a run without training or writing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rich.console import Console

from border_cli.checks.dry_build import Tried, dry_build, resumes_earlier_run
from border_cli.checks.env_report import inspect_env, lines_of
from border_cli.checks.needs import Needs, refuse_unmet, training_needs
from border_cli.config.job import Job
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.errors import ProbeFailed
from border_cli.launch.build import build_evaluator
from border_cli.launch.effective import effective_settings
from border_cli.launch.header import doubts, header_lines
from border_cli.recorder import terminal
from border_cli.system.machine import free_memory
from border_cli.words import size


def show(jobs: Sequence[Job]) -> None:
    """Prints the header of a job, or one line per job of a sweep, and the memory that the largest
    job needs. Raises ConfigError if that much is not available."""
    console = terminal.make_console()
    tried: Tried = []
    needs = [_show_job(console, job, tried) for job in jobs]
    largest = max(needs, key=lambda need: need.nbytes)
    terminal.say(console, f"\nmaximum memory of {largest.name}")
    parts = [(part.what, f"{size(part.nbytes)}   {part.because}") for part in largest.parts]
    terminal.header(
        console, [*parts, ("needed", size(largest.nbytes)), ("available", size(free_memory()))]
    )
    refuse_unmet(needs)
    terminal.say(console, "\ndry run: no job was started and no file was written")


def _show_job(console: Console, job: Job, tried: Tried) -> Needs:
    """Prints the header of a job, or its line in a sweep, and returns its memory needs. The
    agent is freed before the next job is built. As in a sweep, a job whose environment fails its
    trial needs no memory."""
    resumes = resumes_earlier_run(job)
    try:
        effective, spec, agent = dry_build(effective_settings(job.config), tried, resumes=resumes)
    except ProbeFailed as error:
        if not job.in_sweep:
            raise
        terminal.say(console, f"{job.name} will fail: {error}")
        return Needs(name=job.name, parts=[])
    needs = training_needs(effective, spec, agent, job.name)
    if job.in_sweep:
        terminal.say(console, f"{needs.name}: {size(needs.nbytes)} of memory, {job.folder}")
        return needs
    evaluator = build_evaluator(effective, stop=StopFlag(), heartbeat=Heartbeat("evaluation"))
    with closing(evaluator):
        lines = header_lines(job, effective, spec, agent, evaluator)
    lines += [("warning", doubt) for doubt in doubts(effective, job.overrides)]
    terminal.header(console, lines)
    if not job.config.trainer.offline:
        terminal.say(console, "\nthe environment (border-env)")
        terminal.header(console, lines_of(inspect_env(effective, tried))[1:])
    return needs
