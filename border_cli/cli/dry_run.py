"""`dry_run=true`: what a run would do and need; nothing is trained and no folder is made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rich.console import Console

from border_cli.checks.dry_build import Tried, dry_build
from border_cli.checks.needs import Needs, refuse_unmet, training_needs
from border_cli.config.job import Job
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.launch.build import build_evaluator
from border_cli.launch.effective import effective_settings
from border_cli.launch.header import doubts, header_lines
from border_cli.recorder import terminal
from border_cli.system.machine import free_memory
from border_cli.words import size


def show(jobs: Sequence[Job]) -> None:
    """Prints the header of a job, or a line for each job of a sweep, and the memory that the
    largest needs; raises ConfigError where that is not there."""
    console = terminal.make_console()
    known: Tried = []
    needs = [_show_job(console, job, known) for job in jobs]
    largest = max(needs, key=lambda each: each.nbytes)
    terminal.say(console, f"\nmemory of {largest.name}, at most")
    parts = [(each.what, f"{size(each.nbytes)}   {each.because}") for each in largest.parts]
    terminal.header(
        console, [*parts, ("needed", size(largest.nbytes)), ("available", size(free_memory()))]
    )
    refuse_unmet(needs)
    terminal.say(console, "\ndry run: nothing was run and nothing was written")


def _show_job(console: Console, job: Job, known: Tried) -> Needs:
    """Prints the header of one job, or its line in a sweep; returns the memory that it needs. The
    memory of its agent is free again afterwards."""
    effective, spec, agent = dry_build(effective_settings(job.config), known)
    needed = training_needs(effective, spec, agent, job.name)
    if job.in_sweep:
        terminal.say(console, f"{needed.name}: {size(needed.nbytes)} of memory, {job.folder}")
        return needed
    evaluator = build_evaluator(effective, stop=StopFlag(), heartbeat=Heartbeat("evaluation"))
    with closing(evaluator):
        lines = header_lines(job, effective, spec, agent, evaluator)
    lines += [("warning", each) for each in doubts(effective, job.overrides)]
    terminal.header(console, lines)
    return needed
