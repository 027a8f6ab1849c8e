"""All jobs of one command: what Hydra calls for each, and what closes a sweep."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from border_cli.cli.job import JobContext, Outcome, leave_now, run_job
from border_cli.cli.report import resume_run, resume_sweep
from border_cli.config.resuming import FINISHED
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import write_text
from border_cli.launch.dry_build import Probes
from border_cli.recorder import terminal
from border_cli.run.finding import resumable

FACTS = ("best_score", "final_score", "opt_steps", "env_steps")  # of run.json
COLUMNS = ("job", "overrides", "status", "score", *FACTS, "reason", "folder")


class Jobs:
    """Runs each job that it is called with; a job that fails leaves the others alone.

    The objective of a failed job is NaN. An interruption ends the sweep after its job.
    """

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._outcomes: list[Outcome] = []
        self._quiet = True  # until a job is not
        self._command: list[str] = []
        self._has_own_folder = False

    def __call__(self, config: RunConfig, context: JobContext) -> float:
        self._quiet &= config.quiet
        self._command = context.command
        self._has_own_folder = config.run_dir is not None
        outcome = run_job(config, context, on_hung=self._take, refused=self._refusal(config))
        self._take(outcome)
        return outcome.score

    def _refusal(self, config: RunConfig) -> ConfigError | None:
        """Why the environments of a job cannot be used; they were tried before, unless its sweeper
        invented it."""
        try:
            self._probes.training(config)
            self._probes.evaluation(config)
        except ConfigError as error:
            return error
        return None

    def _take(self, outcome: Outcome) -> None:
        """Notes how a job ended; leaves the command where no other job can follow."""
        self._outcomes.append(outcome)
        if outcome.number is not None:
            self._write_csv()
        ends = outcome.number is None or outcome.status == "interrupted"
        if outcome.threads_left or (ends and outcome.exit_status):
            self.finish()
            if outcome.threads_left:
                leave_now(outcome.exit_status)
            raise SystemExit(outcome.exit_status)

    def finish(self, *, interrupted: bool = False) -> int:
        """Prints the table of a sweep that is not quiet; the exit status of the command.

        `interrupted`: between two jobs.
        """
        if not self._quiet and any(each.number is not None for each in self._outcomes):
            self._print_table()
            self._print_next(interrupted)
        failed = [each for each in self._outcomes if each.status != FINISHED]
        return max((each.exit_status for each in failed), default=0) and 1

    def _print_next(self, interrupted: bool) -> None:
        """How the sweep goes on, where something of it is not done."""
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
            common = set()  # a sweep that ended early: nobody knows yet what was swept
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
