"""A study in the terminal: a live table while it runs, and what came out at its end."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from border_cli.analysis.statistics import mean_over_seeds
from border_cli.analysis.tables import with_interval
from border_cli.recorder import figures, terminal
from border_cli.sweep.panel import JobView, LivePanel, footer, jobs_table
from border_cli.tune.trials import RUNNING, WAITING, Study, TrialRow, ranked
from border_cli.words import shell_command, shortest

HINT = "Ctrl-C saves all running trials"
BEST_WHILE_RUNNING, BEST_OF_ALL = 3, 10  # trials
OTHER_LINES = 14  # of the live area than those of the runs


class StudyPanel(LivePanel):
    """Within the block shows the runs and the best trials; events are printed above. Draws in
    `show` and `event` only."""

    def __init__(self, study: Study) -> None:
        super().__init__()
        self._study = study

    def event(self, text: str) -> None:
        """Says what happened to a trial."""
        stamp = f"[{time.strftime('%H:%M:%S')}] "
        terminal.say(self.console, Text.assemble((stamp, "dim"), text))

    def show(self, running: Sequence[JobView], rows: Sequence[TrialRow]) -> None:
        """The runs of this command and all trials as they are now; draws where it is time to."""
        if not self.due():
            return
        summary = f"{counts(self._study, rows)}, {figures.duration(self.elapsed_s)}"
        if self.live is None:
            terminal.say(self.console, summary)
            return
        room = max(1, self.console.height - OTHER_LINES)
        runs = jobs_table(self.console, running[:room], "trial")
        best = best_table(ranked(rows)[:BEST_WHILE_RUNNING])
        self.live.draw(Group(runs, best, Text(summary), footer(HINT)))


def counts(study: Study, rows: Sequence[TrialRow]) -> str:
    """How many trials are in which state, and what all of them cost."""
    found = Counter(row.status for row in rows)
    ended = len(rows) - found[RUNNING] - found[WAITING]
    states = "".join(f"{count} {status}, " for status, count in sorted(found.items()))
    cost = figures.percent(study.share(rows))
    return f"{ended} of {study.trials} trials ended, {states}cost {cost} of the full grid"


def interval(scores: Sequence[float]) -> str:
    """`-78.2 [-81.3, -75.1]`: the mean and its 95 % interval over seeds."""
    return with_interval(mean_over_seeds(np.array(scores)))


def best_table(rows: Sequence[TrialRow]) -> Table:
    """Trials with their scores, and as much of their hyperparameters as there is room for."""
    table = terminal.make_table("trial", "score")
    table.add_column("status")
    for column in table.columns:
        column.no_wrap = True
    table.add_column("hyperparameters")
    for row in rows:
        values = Text(row.values, no_wrap=True, overflow="ellipsis")
        table.add_row(str(row.number), interval(row.scores), row.status, values)
    return table


def print_best(console: Console, study: Study, rows: Sequence[TrialRow]) -> None:
    """Prints the best trials, all values of the first, and how far the study is."""
    best = ranked(rows)[:BEST_OF_ALL]
    console.print(best_table(best))
    for row in best[:1]:
        terminal.say(console, f"best: trial {row.number}: {row.values}")
    terminal.say(console, counts(study, rows))


def print_outcome(
    root: Path, study: Study, rows: Sequence[TrialRow], fresh: Sequence[float]
) -> None:
    """Prints the best trials, the winner's score on fresh seeds, if there is any, and what to type
    next."""
    console, shown = terminal.make_console(), shlex.quote(str(shortest(root)))
    print_best(console, study, rows)
    lines = [("study", shown)]
    if fresh:
        lines += [
            ("winner", f"{interval(fresh)} over {len(fresh)} fresh seeds"),
            ("settings", f"{shown}/best.yaml"),
        ]
    terminal.header(console, [*lines, ("next", f"{shell_command('border-plot')} {shown}")])
