"""`dry_run=true`: what a run would do and need. Nothing is trained and no folder is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from border_cli.cli.outlook import directory_line, outlook
from border_cli.config.compose import Composer, Job
from border_cli.config.overrides import is_sweep
from border_cli.core.errors import ConfigError, ProbeFailed
from border_cli.core.interfaces import Agent
from border_cli.core.machine import Room, address_rooms, free_disk, memory_rooms
from border_cli.core.words import size
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.dry_build import Probes, rehearse
from border_cli.launch.needs import Need, Plan, plan, refuse_unmet
from border_cli.recorder import terminal


def is_asked_for(composer: Composer, jobs: Sequence[Job], overrides: Sequence[str]) -> bool:
    """Whether `dry_run=true` was given; one job is enough, because nobody means a part of a sweep.

    Raises ConfigError where a sweeper invents the jobs as it goes.
    """
    if jobs:
        return any(job.config.dry_run for job in jobs)
    if composer.job([each for each in overrides if not is_sweep(each)]).config.dry_run:
        raise ConfigError(
            "dry_run=true cannot show the jobs of this sweeper, because it chooses each from "
            "earlier scores: leave out -m and the swept values"
        )
    return False


def show(jobs: Sequence[Job], probes: Probes) -> None:
    """Prints all jobs; raises ConfigError where what they need is not there."""
    console = terminal.make_console()
    plans = []
    for job, name in zip(jobs, names(jobs), strict=True):
        built = rehearse(job.config, probes)
        if built is None:  # what hindered it is for all to see now
            spec = env_factory(job.config).spec
            built = spec, build_agent(job.config, spec)
        made = plan(job.config, Path(job.folder).absolute(), built, name)
        plans.append(made)
        if job.number is None:
            _show_run(console, job, made, built[1])
        else:
            _show_job(console, made)
    if jobs and jobs[0].number is not None:
        _show_sweep(console, plans)
    refuse_unmet(plans)
    terminal.say(console, "dry run: nothing was run and nothing was written")


def plans_of(jobs: Sequence[Job], probes: Probes) -> list[Plan]:
    """Lets the components refuse what only they can judge, and counts what the jobs need.

    A job of a sweep whose environment fails as it is tried will say so itself: it needs nothing.
    """
    plans = []
    for job, name in zip(jobs, names(jobs), strict=True):
        try:
            built = rehearse(job.config, probes)
        except ProbeFailed:
            if job.number is None:
                raise
            continue
        if built is not None:
            plans.append(plan(job.config, Path(job.folder).absolute(), built, name))
    return plans


def names(jobs: Sequence[Job]) -> list[str]:
    """What to call each job: its number and what is swept."""
    if len(jobs) == 1 and jobs[0].number is None:
        return ["the run"]
    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    return [
        f"job {job.number} ({' '.join(each for each in job.overrides if each not in common)})"
        for job in jobs
    ]


def _show_run(console: Console, job: Job, plan: Plan, agent: Agent) -> None:
    terminal.header(console, outlook(job, plan, agent))
    _table(console, "memory", plan.memory, [*memory_rooms(), *address_rooms()])
    _table(console, "disk", plan.disk, [free_disk(plan.run_dir)], held=plan.held)


def _show_job(console: Console, plan: Plan) -> None:
    needs = f"memory {size(plan.memory_nbytes)}, disk {size(plan.disk_nbytes)}"
    terminal.say(console, plan.name)
    terminal.header(console, [("  needs", needs), ("  run directory", directory_line(plan))])


def _show_sweep(console: Console, plans: Sequence[Plan]) -> None:
    """The job that needs most, in full, and what all leave on the disk."""
    largest = max(plans, key=lambda each: each.memory_nbytes)
    terminal.say(console, f"{len(plans)} jobs; {largest.name} needs the most memory")
    _table(console, "memory", largest.memory, [*memory_rooms(), *address_rooms()])
    together = sum(each.disk_nbytes for each in plans)
    room = free_disk(plans[0].run_dir)
    terminal.say(
        console, f"disk of all jobs {size(together)}; available {size(room.nbytes)}: {room.limit}"
    )


def _table(
    console: Console, title: str, needs: Sequence[Need], rooms: Sequence[Room], *, held: int = 0
) -> None:
    """What is needed at most, with the settings behind it, and what there is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column(title, no_wrap=True)
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column("from", overflow="fold")
    for each in needs:
        table.add_row(each.what, size(each.nbytes), each.because)
    table.add_section()
    table.add_row("needed", size(sum(each.nbytes for each in needs)), "")
    if held:
        table.add_row("already written", size(held), "")
    reserved = sum(each.reserved for each in needs)
    for room in rooms:
        said = room.limit
        if room in address_rooms():
            said += f", of which {size(reserved)} will be reserved"
        table.add_row("available", size(room.nbytes), said)
    console.print(table)
