"""A sweep as its command sees it: its list of jobs, then how each ended, as a table and in
`sweep.csv`, and what to type next. All of it is read from the folders."""

from __future__ import annotations

import os
import platform
import shlex
import signal
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from border_cli.config.job import Job
from border_cli.config.sweep import ONE_PER_COMMAND
from border_cli.launch.closing import resume_sweep
from border_cli.recorder import terminal
from border_cli.run.lock import RunInUse, running
from border_cli.run.status import DONE, SKIPPED, record_not_begun
from border_cli.run.sweep_folder import (
    JobRow,
    SweepJob,
    SweepPlan,
    add_job,
    alone,
    clear_stop,
    job_row,
    job_rows,
    read_sweep,
    write_csv,
    write_stop,
    write_sweep,
)
from border_cli.sweep.names import in_common, key_and_value, sweep_job, sweep_plan
from border_cli.sweep.plan import Plan, Skipped
from border_cli.system.files import SWEEP_JSON
from border_cli.words import counted, shell_command, shortest

REASON_WIDTH = 120  # characters of the table; sweep.csv has all of it


class Sweep:
    """The sweep of this command: the list of its jobs, which all files of its directory go by."""

    plan: SweepPlan  # of all jobs of the directory

    def __init__(self, planned: Plan) -> None:
        self.root, self.quiet = planned.terms.root, planned.config.quiet
        self._planned = planned
        entries = [self._entry(each, each.config.objective.value) for each in planned.jobs]
        entries += [self._entry(each) for each in planned.skipped]
        self._jobs = sorted(entries, key=lambda each: each.number)
        self._known: dict[Path, SweepJob] = {}  # by its folder, each job that was or is begun
        self._common = in_common([each.overrides for each in self._jobs]) or planned.terms.fixed

    def _entry(self, job: Job | Skipped, objective: str = "best") -> SweepJob:
        folder = str(job.folder.relative_to(self.root))
        return sweep_job(job.number or 0, job.overrides, folder, objective=objective)

    def begin(self) -> None:
        """Writes `sweep.json`, before any job starts, and says which jobs are left out."""
        self.root.mkdir(parents=True, exist_ok=True)
        clear_stop(self.root)
        with alone(self.root):  # another command may begin in it
            self.plan = sweep_plan(
                self._jobs,
                read_sweep(self.root),
                command=self._planned.command,
                launcher=self._planned.terms.launcher,
                common=self._common,
            )
            write_sweep(self.root, self.plan)
        self._known = {self.root / each.folder: each for each in self.plan.jobs}
        for job in self._planned.skipped:
            self.skip(job)

    def skip(self, job: Skipped) -> None:
        """Records and says that a job is left out."""
        name = f"job {self._known[job.folder].number} ({self.label(job.overrides)})"
        with suppress(RunInUse):
            command, reason = self.plan.command, job.reason
            record_not_begun(job.folder, command=command, reason=reason, status=SKIPPED)
            terminal.say(terminal.make_console(stderr=self.quiet), f"{name} is skipped: {reason}")

    def add(self, number: int, overrides: Sequence[str], folder: Path) -> int:
        """Adds a job that a sweeper has invented; the number of one that was there stays."""
        job = sweep_job(number, overrides, str(folder.relative_to(self.root)))
        add_job(self.root, job)
        return self._known.setdefault(folder, job).number

    def numbered(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs with their numbers in the table."""
        return [replace(job, number=self._known[job.folder].number) for job in jobs]

    def label(self, overrides: Sequence[str]) -> str:
        """The overrides that tell a job from the others, as key=value."""
        shared = set(map(key_and_value, self._common))
        pairs = (pair for pair in map(key_and_value, overrides) if pair not in shared)
        return " ".join(f"{key}={value}" for key, value in pairs if key not in ONE_PER_COMMAND)

    def rows(self) -> list[JobRow]:
        """All jobs of the directory as they are now."""
        return job_rows(self.root, read_sweep(self.root) or self.plan)

    def row_of(self, folder: Path) -> JobRow:
        """A job as it is now."""
        return job_row(self.root, self._known[folder])

    def finish(self) -> int:
        """Writes `sweep.csv`, prints the table unless the sweep is quiet; returns the exit status
        of the command."""
        found = read_sweep(self.root)
        plan = found or self.plan  # as it was, with all that was there by then
        rows = job_rows(self.root, plan)
        console = terminal.make_console()
        if found is None:
            terminal.say(
                console, f"{self.root / SWEEP_JSON} was deleted or damaged while the sweep ran"
            )
        folders = {each.folder for each in self._jobs}
        ours = {each.status for each in rows if not folders or each.job.folder in folders}
        done, undone = DONE in ours, ours - {DONE, SKIPPED}
        if not self.quiet and rows:
            _print_table(plan, rows)
            counts = Counter(each.status for each in rows)
            left_out = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
            terminal.say(console, f"{counts[DONE]} of {counted(len(rows), 'job')} done{left_out}")
            terminal.say(console, f"sweep directory  {self.root}")
            if undone and folders:
                terminal.say(console, f"next             {resume_sweep(plan.command, self.root)}")
            elif done:
                place = shlex.quote(str(shortest(self.root)))
                terminal.say(console, f"next             {shell_command('border-plot')} {place}")
        write_csv(self.root, plan, rows)
        clear_stop(self.root)
        return 0 if done and not undone and found is not None else 1

    def stop(self, reason: str) -> None:
        """No job begins any more; those that run on this machine are asked to save and to end."""
        write_stop(self.root, reason)
        for row in self.rows():
            _ask_to_end(row)


def _ask_to_end(row: JobRow) -> None:
    """Sends SIGTERM to the process that runs a job, if that is one of this machine."""
    if row.status != "running" or row.facts.get("host") != platform.node():
        return
    with running(row.folder) as runs, suppress(OSError):
        if runs and row.facts["pid"] != os.getpid():
            os.kill(row.facts["pid"], signal.SIGTERM)


def _print_table(plan: SweepPlan, rows: Sequence[JobRow]) -> None:
    """One line for each job: its number, what was swept, how it went."""
    console = terminal.make_console()
    table = terminal.make_table("job")
    for name in (*plan.swept, "status", "score", "reason"):
        table.add_column(name, overflow="fold")
    for row in rows:
        score = "-" if row.score is None else f"{row.score:,.1f}"
        values = [row.job.values.get(key, "") for key in plan.swept]
        reason = textwrap.shorten(row.reason, REASON_WIDTH, placeholder=" …")
        table.add_row(str(row.job.number), *values, row.status, score, reason)
    console.print(table)
