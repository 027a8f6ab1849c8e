"""Labels and folders of the jobs of a sweep.

With `run_dir=…`, a folder is named by the overrides of its job, except those shared by all jobs of
the first sweep in that directory. The same command, or one with more values, then finds its jobs
again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from border_cli.config.overrides import parse_overrides
from border_cli.config.resuming import may_change
from border_cli.config.sweep import ONE_PER_COMMAND
from border_cli.run.sweep_folder import SweepJob, SweepPlan, read_sweep, swept_keys

MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes


def split_override(text: str) -> tuple[str, str]:
    """Splits an override into key and unquoted value: `env.id='a b'` -> `env.id`, `a b`."""
    (override,) = parse_overrides([text])
    key = override.key_or_group
    if override.is_delete():
        return f"~{key}", ""
    value = override.value()
    if isinstance(value, bool):
        return key, str(value).lower()
    return key, value if isinstance(value, str) else override.get_value_element_as_str()


def shared_overrides(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Returns the overrides shared by all jobs; empty if there are fewer than two jobs."""
    if len(jobs) < 2:
        return []
    shared = set.intersection(*map(set, jobs))
    return [override for override in jobs[0] if override in shared]


class JobFolders:
    """The folders of jobs. A job that was in the directory before keeps its folder. Others are
    named by number or, in a directory that the user chose, by the overrides that distinguish them.

    Names leave out overrides shared by all jobs of the first sweep. If a resume may change such a
    setting, they leave it out with any value.
    """

    def __init__(self, root: Path, common: Sequence[str], *, named: bool) -> None:
        """`common`: overrides shared by all jobs, used if the directory has no sweep yet."""
        before = read_sweep(root)
        self._root, self._named = root, named
        self._common = {split_override(text) for text in (before.common if before else common)}
        self._free = {key for key, _ in self._common if may_change(key)}
        self._folders = {
            self._identity(job.overrides): job.folder for job in (before.jobs if before else ())
        }

    def _identity(self, overrides: Iterable[str]) -> frozenset[str]:
        """Returns the overrides that distinguish a job from the others in the directory."""
        return frozenset(
            override
            for override in overrides
            if (pair := split_override(override)) not in self._common
            and pair[0] not in self._free
            and pair[0] not in ONE_PER_COMMAND
        )

    def folder_of(self, overrides: Sequence[str], number: int) -> Path:
        """Returns the folder of a job."""
        if not self._named:
            return self._root / str(number)
        identity = self._identity(overrides)
        name = self._folders.get(identity) or _make_folder_name(",".join(sorted(identity)))
        return self._root / name


def _make_folder_name(overrides: str) -> str:
    """Turns `agent=dqn,seed=0` into `agent-dqn__seed-0`. A digest distinguishes equal results."""
    readable = overrides.replace("=", "-").replace(",", "__")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", readable)[:MAX_FOLDER_NAME].strip(".-") or "defaults"
    if not overrides or (name == readable and "__" not in overrides):
        return name
    return f"{name}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def make_sweep_job(
    number: int, overrides: Sequence[str], folder: str, *, objective: str = "best"
) -> SweepJob:
    """Returns the entry in `sweep.json`. Its values omit settings that apply to a whole command."""
    values = dict(map(split_override, overrides))
    return SweepJob(
        number=number,
        overrides=tuple(overrides),
        folder=folder,
        values={key: value for key, value in values.items() if key not in ONE_PER_COMMAND},
        objective=objective,
    )


def merge_plan(
    jobs: Sequence[SweepJob],
    before: SweepPlan | None = None,
    *,
    command: Sequence[str],
    launcher: str,
    common: Sequence[str],
) -> SweepPlan:
    """Merges these jobs with those of earlier sweeps in the directory, which keep their numbers.
    `common`: overrides shared by all these jobs."""
    jobs_by_folder = {entry.folder: entry for entry in before.jobs} if before else {}
    numbers = count(1 + max((entry.number for entry in jobs_by_folder.values()), default=-1))
    for job in jobs:
        old = jobs_by_folder.get(job.folder)
        jobs_by_folder[job.folder] = replace(job, number=old.number if old else next(numbers))
    return SweepPlan(
        command=list(command),
        launcher=launcher,
        swept=swept_keys(list(jobs_by_folder.values())),
        common=before.common if before else list(common),
        jobs=list(jobs_by_folder.values()),
    )
