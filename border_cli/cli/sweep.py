"""A sweep as its command sees it: its list of jobs, then how each ended, as a table and in
`sweep.csv`, and what to type next. All of it is read from the folders."""

from __future__ import annotations

import os
import platform
import signal
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

from border_cli.core.words import counted
from border_cli.launch.report import resume_sweep
from border_cli.recorder import terminal
from border_cli.run.status import RunInUse, running
from border_cli.run.sweep_folder import (
    DONE,
    SWEEP_JSON,
    JobRow,
    SweepJob,
    SweepPlan,
    alone,
    clear_stop,
    job_rows,
    read_sweep,
    write_csv,
    write_stop,
    write_sweep,
)

LOCKS_S = 5.0  # within which the jobs of a sweep that was killed are gone
LOOK_S = 0.1
REASON_WIDTH = 120  # characters of the table; sweep.csv has all of it


class Sweep:
    """The sweep of this command."""

    plan: SweepPlan  # of all jobs of the directory

    def __init__(
        self,
        root: Path,
        plan: Callable[[SweepPlan | None], SweepPlan],
        *,
        jobs: Sequence[SweepJob],
        quiet: bool,
    ) -> None:
        """`plan` adds the `jobs` of this command to what the directory has."""
        self.root = root
        self._plan = plan
        self.quiet = quiet
        self._folders = [each.folder for each in jobs]
        self._invented = not jobs

    def begin(self) -> None:
        """Writes `sweep.json`, before any job starts."""
        self.root.mkdir(parents=True, exist_ok=True)
        clear_stop(self.root)
        with alone(self.root):  # another command may begin in it
            self.plan = self._plan(read_sweep(self.root))
            write_sweep(self.root, self.plan)

    def rows(self) -> list[JobRow]:
        """All jobs of the directory as they are now."""
        return job_rows(self.root, read_sweep(self.root) or self.plan)

    def finish(self) -> int:
        """Writes `sweep.csv`, prints the table unless the sweep is quiet; returns the exit status
        of the command."""
        found = read_sweep(self.root)
        plan = found or self.plan
        rows = job_rows(self.root, plan)
        console = terminal.make_console()
        if found is None:  # with all that was there by then
            lost = self.root / SWEEP_JSON
            terminal.say(console, f"{lost} was deleted or damaged while the sweep ran")
        try:
            write_csv(self.root, plan, rows)
        except OSError as error:
            terminal.say(console, f"sweep.csv could not be written: {error}")
        ours = [each for each in rows if self._invented or each.job.folder in self._folders]
        undone = [each for each in ours if each.status != DONE]
        with suppress(OSError):
            clear_stop(self.root)
        if not self.quiet and rows:
            _print_table(plan, rows)
            num_done = sum(each.status == DONE for each in rows)
            terminal.say(console, f"{num_done} of {counted(len(rows), 'job')} done")
            terminal.say(console, f"sweep directory  {self.root}")
            if undone and not self._invented:
                command = resume_sweep(plan.command, self.root)
                terminal.say(console, f"next             {command}")
        return 1 if undone or not ours or found is None else 0

    def stop(self, reason: str) -> None:
        """No job begins any more; those that run on this machine are asked to save and to end."""
        write_stop(self.root, reason)
        for row in self.rows():
            _signal(row, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the jobs that run on this machine."""
        for row in self.rows():
            _signal(row, signal.SIGKILL)


def _signal(row: JobRow, signum: int) -> None:
    """Sends a signal to the process that runs a job, if that is one of this machine."""
    pid, host = row.facts.get("pid"), row.facts.get("host")
    if row.status != "running" or not isinstance(pid, int) or host != platform.node():
        return
    with running(row.folder) as runs:
        if runs and pid != os.getpid():
            with suppress(OSError):
                os.kill(pid, signum)


def _pause(seconds: float) -> None:
    Event().wait(seconds)


def wait_for_locks(folders: Sequence[Path], pause: Callable[[float], object] = _pause) -> None:
    """Gives the jobs of a sweep that was killed the time to end.

    Raises ConfigError where one of them still runs then.
    """
    waiting, left_s = list(folders), LOCKS_S
    while True:
        waiting = [each for each in waiting if _runs(each)]
        if not waiting:
            return
        if left_s <= 0:
            raise RunInUse(waiting[0])
        pause(LOOK_S)
        left_s -= LOOK_S


def _runs(folder: Path) -> bool:
    with running(folder) as runs:
        return bool(runs)


def _print_table(plan: SweepPlan, rows: Sequence[JobRow]) -> None:
    """One line for each job: its number, what was swept, how it went."""
    console = terminal.make_console()
    table = terminal.make_table("job")
    for key in plan.swept:
        table.add_column(key, overflow="fold")
    for name in ("status", "score", "reason"):
        table.add_column(name, overflow="fold")
    for row in rows:
        score = "-" if row.score is None else f"{row.score:,.1f}"
        values = [row.job.values.get(key, "") for key in plan.swept]
        reason = textwrap.shorten(row.reason, REASON_WIDTH, placeholder=" …")
        table.add_row(str(row.job.number), *values, row.status, score, reason)
    console.print(table)
