"""Jobs of a sweep that only a dry build refuses, left out as `sweep.skip_invalid` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from border_cli.errors import ConfigError, reason_of
from border_cli.launch import dry_build
from border_cli.launch.needs import Needs
from border_cli.sweep.plan import Plan, Skipped


def dry_built(plan: Plan) -> tuple[Plan, Sequence[Needs]]:
    """The plan without the jobs that are left out, and the memory that the others need; raises
    ConfigError for the first job that is refused where none is left out, or no other is there."""
    refused: dict[int, ConfigError] = {}
    jobs, needs = dry_build.dry_built(plan.jobs, refused if plan.terms.skip_invalid else None)
    if refused and not jobs:
        raise next(iter(refused.values()))
    skipped = [
        Skipped(job.number, job.overrides, job.folder, reason_of(refused[job.number]))
        for job in plan.jobs
        if job.number in refused
    ]
    return replace(plan, jobs=jobs, skipped=sorted([*plan.skipped, *skipped])), needs
