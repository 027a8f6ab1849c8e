"""Jobs before they run: whether what they are made of fits together, and into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from border_cli.config.job import Job
from border_cli.core.errors import ProbeFailed
from border_cli.launch.dry_build import Probes, dry_build
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.needs import Needs, agent_sizes, training_needs

# Settings on which a dry build does not depend.
NOT_BUILT = (
    *("seed", "name", "imports", "run_dir", "resume", "dry_run", "quiet", "objective"),
    *("trainer", "recorder", "checkpoint", "sweep"),
)


def tried(jobs: Sequence[Job], probes: Probes) -> list[Needs]:
    """What the jobs need of memory, counted from dry builds, in which components refuse what only
    they can judge; jobs with the same components share one.

    A job of a sweep whose environment fails as it is tried fails by itself: it needs nothing.
    """
    needs: list[Needs] = []
    made: dict[str, Needs | None] = {}
    for job, name in zip(jobs, job_names(jobs), strict=True):
        effective = effective_settings(job.config)
        kind = same_build(effective)
        if kind not in made:
            made[kind] = _needs(job, effective, probes)
        like = made[kind]
        if like is not None:
            needs.append(replace(like, name=name))
    return needs


def _needs(job: Job, effective: EffectiveSettings, probes: Probes) -> Needs | None:
    try:
        built = dry_build(effective, probes)
    except ProbeFailed:
        if job.number is None:
            raise
        return None
    if built is None:
        return None
    spec, agent = built
    return training_needs(effective, spec, agent_sizes(effective, agent))


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
