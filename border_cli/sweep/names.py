"""The names of a sweep's jobs: the keys that differ between them, and their folders.

With `run_dir=…` a folder is named by the overrides that are not common to all jobs of the first
sweep there, so that the same command, or one with more values, finds its jobs again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from border_cli.config.overrides import parsed
from border_cli.config.resuming import may_change
from border_cli.config.sweep import ONE_PER_COMMAND
from border_cli.run.sweep_folder import SweepJob, SweepPlan, read_sweep, swept_keys

MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes


def key_and_value(text: str) -> tuple[str, str]:
    """`env.id` and `a b` of `env.id='a b'`: the value as it is meant, without quotes."""
    (override,) = parsed([text])
    key = override.key_or_group
    if override.is_delete():
        return f"~{key}", ""
    value = override.value()
    if isinstance(value, bool):
        return key, str(value).lower()
    return key, value if isinstance(value, str) else override.get_value_element_as_str()


def in_common(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides that all jobs have; none where there is only one job to compare."""
    if len(jobs) < 2:
        return []
    shared = set.intersection(*map(set, jobs))
    return [each for each in jobs[0] if each in shared]


class Places:
    """The folders of jobs: where they were before, or named by their numbers or, in a directory of
    the user's choice, by the overrides that tell them from the others.

    An override that all jobs of the first sweep share is no part of a name; nor is a setting of
    theirs that may change when a run is resumed, whatever its value is now.
    """

    def __init__(self, root: Path, common: Sequence[str], *, named: bool) -> None:
        """`common`: overrides of all jobs, where none were here before."""
        before = read_sweep(root)
        self._root, self._named = root, named
        self._common = {key_and_value(each) for each in (before.common if before else common)}
        self._free = {key for key, _ in self._common if may_change(key)}
        self._known = {
            self._identity(job.overrides): job.folder for job in (before.jobs if before else ())
        }

    def _identity(self, overrides: Iterable[str]) -> frozenset[str]:
        """The overrides that tell a job from the others there."""
        return frozenset(
            each
            for each in overrides
            if (pair := key_and_value(each)) not in self._common
            and pair[0] not in self._free
            and pair[0] not in ONE_PER_COMMAND
        )

    def folder_of(self, overrides: Sequence[str], number: int) -> Path:
        """The folder of a job."""
        if not self._named:
            return self._root / str(number)
        identity = self._identity(overrides)
        name = self._known.get(identity) or _named(",".join(sorted(identity)))
        return self._root / name


def _named(overrides: str) -> str:
    """`agent=dqn,seed=0` becomes `agent-dqn__seed-0`; a digest keeps apart what becomes equal."""
    plain = overrides.replace("=", "-").replace(",", "__")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:MAX_FOLDER_NAME].strip(".-") or "defaults"
    if not overrides or (name == plain and "__" not in overrides):
        return name
    return f"{name}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def sweep_job(
    number: int, overrides: Sequence[str], folder: str, *, objective: str = "best"
) -> SweepJob:
    """The entry of `sweep.json`; what holds for a whole command is no value of a job."""
    values = dict(map(key_and_value, overrides))
    return SweepJob(
        number=number,
        overrides=tuple(overrides),
        folder=folder,
        values={key: value for key, value in values.items() if key not in ONE_PER_COMMAND},
        objective=objective,
    )


def sweep_plan(
    jobs: Sequence[SweepJob],
    before: SweepPlan | None = None,
    *,
    command: Sequence[str],
    launcher: str,
    common: Sequence[str],
) -> SweepPlan:
    """The plan of these jobs and of those of earlier sweeps in the same directory, which keep their
    numbers. `common`: overrides of all of these."""
    every = {each.folder: each for each in before.jobs} if before else {}
    new = count(1 + max((each.number for each in every.values()), default=-1))
    for job in jobs:
        known = every.get(job.folder)
        every[job.folder] = replace(job, number=known.number if known else next(new))
    return SweepPlan(
        command=list(command),
        launcher=launcher,
        swept=swept_keys(list(every.values())),
        common=before.common if before else list(common),
        jobs=list(every.values()),
    )
