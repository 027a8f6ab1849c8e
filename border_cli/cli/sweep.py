"""The jobs of a sweep: how each ended, as a table and in `sweep.csv`, and what to type next."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from border_cli.cli.report import resume_run, resume_sweep
from border_cli.config.resuming import FINISHED
from border_cli.core.config import RunConfig
from border_cli.core.files import write_text
from border_cli.recorder import terminal
from border_cli.run.finding import resumable

FACTS = ("best_score", "final_score", "opt_steps", "env_steps")  # of run.json
COLUMNS = ("job", "overrides", "status", "score", *FACTS, "reason", "folder")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one job ended."""

    folder: Path
    number: int | None
    overrides: list[str]
    status: str  # done, failed, interrupted
    score: float = math.nan  # the objective
    reason: str = ""
    exit_status: int = 0
    threads_left: bool = False  # a thread hangs: the process cannot end by itself
    facts: dict[str, Any] = field(default_factory=dict)  # run.json


class Sweep:
    """The jobs of a sweep that have ended."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._outcomes: list[Outcome] = []
        self._quiet = True  # until a job is not
        self._has_own_folder = False

    def add(self, outcome: Outcome, config: RunConfig) -> None:
        """Notes how a job ended, in `sweep.csv` as well."""
        self._outcomes.append(outcome)
        self._quiet &= config.quiet
        self._has_own_folder = config.run_dir is not None
        self._write_csv()

    def finish(self, *, interrupted: bool = False) -> int:
        """Prints the table of a sweep, unless it is quiet; returns the exit status of the command.

        `interrupted`: between two jobs.
        """
        if not self._quiet and self._outcomes:
            self._print_table()
            self._print_next(interrupted)
        failed = [each for each in self._outcomes if each.status != FINISHED]
        return max((each.exit_status for each in failed), default=0) and 1

    def _print_next(self, interrupted: bool) -> None:
        """How to resume the sweep, where something of it is not done."""
        last = self._outcomes[-1]
        undone = any(each.status != FINISHED for each in self._outcomes)
        if self._has_own_folder and (undone or interrupted):
            command = resume_sweep(self._command)
        elif last.status == "interrupted" and resumable(last.folder):
            command = resume_run(last.folder)
        else:
            return
        terminal.say(terminal.make_console(), f"next             {command}")

    def _write_csv(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for each in self._outcomes:
            writer.writerow(_row(each))
        try:
            write_text(self._root / "sweep.csv", text.getvalue())
        except OSError as error:
            terminal.say(terminal.make_console(), f"sweep.csv could not be written: {error}")

    def _print_table(self) -> None:
        console = terminal.make_console()
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for name in ("job", "overrides", "status", "score", "reason"):
            table.add_column(name, overflow="fold")
        common = set.intersection(*(set(each.overrides) for each in self._outcomes))
        if len(self._outcomes) == 1:
            common = set()  # a sweep that ended early: what was swept is unknown
        for each in self._outcomes:
            score = "-" if math.isnan(each.score) else f"{each.score:,.1f}"
            swept = " ".join(text for text in each.overrides if text not in common)
            table.add_row(str(each.number), swept, each.status, score, each.reason)
        console.print(table)
        done = sum(each.status == FINISHED for each in self._outcomes)
        terminal.say(console, f"{done} of {len(self._outcomes)} jobs done")
        terminal.say(console, f"sweep directory  {self._root}")

    @property
    def _root(self) -> Path:
        return self._outcomes[0].folder.parent


def _row(outcome: Outcome) -> list[object]:
    return [
        outcome.number,
        " ".join(outcome.overrides),
        outcome.status,
        "" if math.isnan(outcome.score) else outcome.score,
        *(outcome.facts.get(name) for name in FACTS),
        outcome.reason,
        outcome.folder,
    ]
