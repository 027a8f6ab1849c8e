"""The jobs of a sweep and the table of their results. All results are read from run folders."""

from __future__ import annotations

import os
import platform
import shlex
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from border_cli.config.job import Job
from border_cli.config.sweep import ONE_PER_COMMAND
from border_cli.errors import RunFailed
from border_cli.launch.closing import sweep_command
from border_cli.recorder import terminal
from border_cli.run.lock import RunInUse, running
from border_cli.run.status import DONE, SKIPPED, record_not_begun
from border_cli.run.sweep_folder import (
    JobRow,
    SweepJob,
    SweepPlan,
    add_job,
    clear_stop,
    job_row,
    job_rows,
    read_sweep,
    sweep_lock,
    write_csv,
    write_stop,
    write_sweep,
)
from border_cli.sweep.names import make_sweep_job, merge_plan, shared_overrides, split_override
from border_cli.sweep.plan import Plan, RefusedJob
from border_cli.system.files import SWEEP_JSON
from border_cli.words import pluralize, shell_command, shortest


class Sweep:
    """The sweep of one command: its jobs, and their results as recorded in the sweep directory."""

    plan: SweepPlan  # plan of all jobs in the directory

    def __init__(self, plan: Plan) -> None:
        self.root, self.quiet = plan.terms.root, plan.config.quiet
        self._command_plan = plan
        entries = [self._make_entry(job, job.config.objective.value) for job in plan.jobs]
        entries += [self._make_entry(job) for job in plan.skipped]
        self._jobs = sorted(entries, key=lambda job: job.number)
        self._jobs_by_folder: dict[Path, SweepJob] = {}  # folder -> job in the plan
        self._common = shared_overrides([job.overrides for job in self._jobs]) or plan.terms.fixed

    def _make_entry(self, job: Job | RefusedJob, objective: str = "best") -> SweepJob:
        folder = str(job.folder.relative_to(self.root))
        return make_sweep_job(job.number or 0, job.overrides, folder, objective=objective)

    def begin(self) -> None:
        """Writes `sweep.json` before any job starts, and reports the jobs that are skipped."""
        self.root.mkdir(parents=True, exist_ok=True)
        clear_stop(self.root)
        with sweep_lock(self.root):  # another command may use the same directory
            self.plan = merge_plan(
                self._jobs,
                read_sweep(self.root),
                command=self._command_plan.command,
                launcher=self._command_plan.terms.launcher,
                common=self._common,
            )
            write_sweep(self.root, self.plan)
        self._jobs_by_folder = {self.root / entry.folder: entry for entry in self.plan.jobs}
        for job in self._command_plan.skipped:
            self.skip(job)

    def skip(self, job: RefusedJob) -> None:
        """Records and reports that a job is skipped."""
        name = f"job {self._jobs_by_folder[job.folder].number} ({self.label(job.overrides)})"
        with suppress(RunInUse):
            command, reason = self.plan.command, job.reason
            record_not_begun(job.folder, command=command, reason=reason, status=SKIPPED)
            terminal.say(terminal.make_console(stderr=self.quiet), f"{name} is skipped: {reason}")

    def add(self, number: int, overrides: Sequence[str], folder: Path) -> int:
        """Adds a job proposed by a sweeper; returns its number, or that of the existing job."""
        objective = self._command_plan.config.objective.value
        name = str(folder.relative_to(self.root))
        job = make_sweep_job(number, overrides, name, objective=objective)
        add_job(self.root, job)
        return self._jobs_by_folder.setdefault(folder, job).number

    def with_numbers(self, jobs: Sequence[Job]) -> list[Job]:
        """Returns the jobs with their numbers in the table."""
        return [replace(job, number=self._jobs_by_folder[job.folder].number) for job in jobs]

    def label(self, overrides: Sequence[str]) -> str:
        """Returns the overrides that distinguish a job from the others, as key=value."""
        shared = set(map(split_override, self._common))
        pairs = (pair for pair in map(split_override, overrides) if pair not in shared)
        return " ".join(f"{key}={value}" for key, value in pairs if key not in ONE_PER_COMMAND)

    def rows(self) -> list[JobRow]:
        """Returns the current state of all jobs in the directory."""
        return job_rows(self.root, read_sweep(self.root) or self.plan)

    def row_of(self, folder: Path) -> JobRow:
        """Returns the current state of a job."""
        return job_row(self.root, self._jobs_by_folder[folder])

    def finish(self) -> int:
        """Writes `sweep.csv`, prints the table unless the sweep is quiet, and returns the exit
        status of the command. Raises RunFailed if `sweep.json` is gone."""
        plan = read_sweep(self.root)
        if plan is None:
            raise RunFailed(f"{self.root / SWEEP_JSON} was deleted or damaged while the sweep ran")
        rows = job_rows(self.root, plan)
        console = terminal.make_console()
        folders = {job.folder for job in self._jobs}
        statuses = {row.status for row in rows if not folders or row.job.folder in folders}
        done, unfinished = DONE in statuses, statuses - {DONE, SKIPPED}
        if not self.quiet and rows:
            _print_table(plan, rows)
            counts = Counter(row.status for row in rows)
            skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
            terminal.say(console, f"{counts[DONE]} of {pluralize(len(rows), 'job')} done{skipped}")
            terminal.say(console, f"sweep directory  {self.root}")
            if unfinished and folders:
                terminal.say(console, f"next             {sweep_command(plan.command, self.root)}")
            elif done:
                path = shlex.quote(str(shortest(self.root)))
                terminal.say(console, f"next             {shell_command('border-plot')} {path}")
        write_csv(self.root, plan, rows)
        clear_stop(self.root)
        return 0 if done and not unfinished else 1

    def stop(self, reason: str) -> None:
        """Stops the sweep: no more jobs start, and those running on this machine save and end."""
        write_stop(self.root, reason)
        for row in self.rows():
            _terminate(row)


def _terminate(row: JobRow) -> None:
    """Sends SIGTERM to the process of a running job if it is on this machine."""
    if row.status != "running" or row.facts.get("host") != platform.node():
        return
    with running(row.folder) as is_running, suppress(OSError):
        if is_running and row.facts["pid"] != os.getpid():
            os.kill(row.facts["pid"], signal.SIGTERM)


def _print_table(plan: SweepPlan, rows: Sequence[JobRow]) -> None:
    """Prints a line per job: its number, the swept values and the result."""
    console = terminal.make_console()
    table = terminal.make_table("job")
    for name in (*plan.swept, "status", "score", "reason"):
        table.add_column(name, overflow="fold")
    for row in rows:
        score = "-" if row.score is None else f"{row.score:,.1f}"
        values = [row.job.values.get(key, "") for key in plan.swept]
        table.add_row(str(row.job.number), *values, row.status, score, row.reason)
    console.print(table)
