"""The directory of a sweep: `sweep.json`, the list of its jobs, and the results of the jobs.

The list is written before the first job starts. The result of a job is read from its own
`run.json`, regardless of the process that ran it. The table, `sweep.csv` and the exit status of a
sweep are therefore the same for every reader.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from border_cli.errors import ConfigError
from border_cli.run.run_folder import RunFolder
from border_cli.run.status import DONE, LOST, RUN_JSON
from border_cli.system.files import (
    STUDY_JSON,
    SWEEP_JSON,
    read_bytes_or_empty,
    write_json,
    write_text,
)

SWEEP_CSV = "sweep.csv"
SWEEP_STOP = "sweep.stop"  # exists while no further job may start; contains the reason
SCORES = {"best": "best_score", "last": "final_score"}  # entry of run.json for each objective
FACTS = ("best_score", "final_score", "opt_steps", "env_steps")  # entries of run.json
COLUMNS = ("status", "score", *FACTS, "seconds", "reason", "folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One job of a sweep, as requested."""

    number: int
    overrides: tuple[str, ...]  # as typed, including those of the whole sweep
    folder: str  # name in the directory of the sweep
    values: Mapping[str, str] = field(default_factory=dict)  # unescaped value of each override
    objective: str = "best"  # score that counts: best or last

    def __post_init__(self) -> None:
        if not re.fullmatch(r"(?!\.+$)[^/]+", self.folder):
            raise ConfigError(
                f"{SWEEP_JSON}: the folder of a job must be a name in the directory of the sweep, "
                f"got {self.folder!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The content of `sweep.json`: the command of a sweep and its jobs."""

    command: list[str]
    launcher: str
    swept: list[str]  # the keys whose values differ between the jobs
    common: list[str] = field(default_factory=list)  # overrides shared by jobs of the first sweep
    jobs: list[SweepJob] = field(default_factory=list)  # in the order of their numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """The result of a job, as recorded in its folder."""

    job: SweepJob
    folder: Path
    status: str  # as in run.json, or "not started" or "lost"
    score: float | None  # score by the objective; None unless done
    reason: str
    facts: Mapping[str, Any]  # content of run.json


def write_sweep(root: Path, plan: SweepPlan) -> None:
    """Writes `sweep.json`."""
    write_json(root / SWEEP_JSON, asdict(plan))


def read_sweep(root: Path) -> SweepPlan | None:
    """Reads the plan of the sweep in a directory; None if there is none, or none from border_cli.

    Raises ConfigError if the folder of a job is not in the directory.
    """
    try:
        content = json.loads(read_bytes_or_empty(root / SWEEP_JSON))
        jobs = [
            SweepJob(**{**job, "overrides": tuple(job["overrides"])}) for job in content.pop("jobs")
        ]
        return SweepPlan(**content, jobs=jobs)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def job_rows(root: Path, plan: SweepPlan) -> list[JobRow]:
    """Returns the results of all jobs of a sweep, in the order of their numbers."""
    return [job_row(root, job) for job in plan.jobs]


def job_row(root: Path, job: SweepJob) -> JobRow:
    """Returns the result of a job."""
    folder = root / job.folder
    run = RunFolder(folder)
    status, facts = run.status, run.facts
    lost = f"it has begun, but {RUN_JSON} is missing or damaged" if status == LOST else ""
    return JobRow(
        job=job,
        folder=folder,
        status=status,
        score=facts.get(SCORES[job.objective]) if status == DONE else None,
        reason=str(facts.get("exit_reason") or lost),
        facts=facts,
    )


def swept_keys(jobs: Sequence[SweepJob]) -> list[str]:
    """Returns the keys whose values differ between jobs, in the order of the command."""
    keys = dict.fromkeys(key for job in jobs for key in job.values)
    return [key for key in keys if len({job.values.get(key) for job in jobs}) > 1]


def csv_text(plan: SweepPlan, rows: Sequence[JobRow]) -> str:
    """Returns the content of `sweep.csv`: job number, swept keys, status, scores and counters."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", *plan.swept, *COLUMNS])
    for row in rows:
        seconds = row.facts.get("duration_s")
        writer.writerow(
            [
                row.job.number,
                *(row.job.values.get(key, "") for key in plan.swept),
                row.status,
                row.score,  # None is written as an empty field
                *(row.facts.get(name) for name in FACTS),
                None if seconds is None else round(seconds, 3),
                row.reason,
                row.folder,
            ]
        )
    return text.getvalue()


def write_csv(root: Path, plan: SweepPlan, rows: Sequence[JobRow]) -> None:
    """Replaces `sweep.csv`. Raises `OSError` if it cannot be written."""
    write_text(root / SWEEP_CSV, csv_text(plan, rows))


@contextmanager
def sweep_lock(root: Path) -> Iterator[None]:
    """Within the block, no other process of border_cli changes the files of the sweep."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def add_job(root: Path, job: SweepJob) -> None:
    """Adds a job that a sweeper has created; does nothing if the job is in the list."""
    with suppress(OSError), sweep_lock(root):
        plan = read_sweep(root)
        if plan is None or any(known.folder == job.folder for known in plan.jobs):
            return
        jobs = [*plan.jobs, job]
        write_sweep(root, replace(plan, jobs=jobs, swept=swept_keys(jobs)))


def write_stop(root: Path, reason: str) -> None:
    """Prevents further jobs of the sweep from starting; keeps the first reason."""
    if read_stop(root) is None:
        with suppress(OSError):
            write_text(root / SWEEP_STOP, f"{reason}\n")


def read_stop(root: Path) -> str | None:
    """Returns why no further job of the sweep starts, or None if the sweep is not stopped."""
    try:
        return (root / SWEEP_STOP).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def clear_stop(root: Path) -> None:
    """Allows jobs of the sweep to start again."""
    (root / SWEEP_STOP).unlink(missing_ok=True)


def group_of(run_dir: Path) -> Path | None:
    """Returns the directory of the sweep or the study that a run belongs to, if any."""
    files = (run_dir.parent / SWEEP_JSON, run_dir.parent.parent / STUDY_JSON)
    return next((file.parent for file in files if file.is_file()), None)
