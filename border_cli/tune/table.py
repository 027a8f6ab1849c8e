"""A study in the terminal: a live table while it runs, and what came out at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from border_cli.analysis.statistics import mean_over_seeds
from border_cli.analysis.tables import with_interval
from border_cli.recorder import figures, terminal
from border_cli.sweep.panel import JobView, LivePanel
from border_cli.tune.trials import Study, TrialRow, ranked

BEST_WHILE_RUNNING, BEST_OF_ALL = 3, 10  # trials


class StudyPanel(LivePanel):
    """The runs of a study, and its best trials."""

    kind, hint = "trial", "Ctrl-C saves all running trials"
    other_lines = 13

    def show(self, running: Sequence[JobView], study: Study, rows: Sequence[TrialRow]) -> None:
        """The runs of this command and all trials as they are now; draws where it is time to."""
        self.draw(running, counts(study, rows), best_table(ranked(rows)[:BEST_WHILE_RUNNING]))


def counts(study: Study, rows: Sequence[TrialRow]) -> str:
    """How many trials there are, what all of them cost, and how many are in which state."""
    by_status = Counter(row.status for row in rows)
    states = ", ".join(f"{by_status[status]} {status}" for status in sorted(by_status))
    full_grid = study.trials * study.budgets[-1]  # steps of each seed
    cost = figures.percent(sum(row.budget for row in rows) / full_grid)
    return f"{len(rows)} of {study.trials} trials, cost {cost} of the full grid: {states}"


def interval(scores: Sequence[float]) -> str:
    """`-78.2 [-81.3, -75.1]`: the mean and its 95 % interval over seeds."""
    return with_interval(mean_over_seeds(np.array(scores)))


def score_of(winner: TrialRow, fresh: Sequence[float]) -> str:
    """`-78.2 [-81.3, -75.1] over 5 fresh seeds`, or over its own where there are none."""
    over = f"{len(fresh)} fresh seeds" if fresh else "the seeds that chose it"
    return f"{interval(fresh or winner.scores)} over {over}"


def best_table(rows: Sequence[TrialRow]) -> Table:
    """Trials with their scores, and as much of their hyperparameters as there is room for."""
    table = terminal.make_table("trial", "score", "status")
    for column in table.columns:
        column.no_wrap = True
    table.add_column("hyperparameters")
    for row in rows:
        values = Text(row.values, no_wrap=True, overflow="ellipsis")
        table.add_row(str(row.number), interval(row.scores), row.status, values)
    return table


def print_best(study: Study, rows: Sequence[TrialRow], *lines: tuple[str, str]) -> None:
    """Prints the best trials, how far the study is, all values of the first, and more lines."""
    console, best = terminal.make_console(), ranked(rows)
    console.print(best_table(best[:BEST_OF_ALL]))
    first = [("best", f"trial {row.number}: {row.values}") for row in best[:1]]
    terminal.header(console, [("trials", counts(study, rows)), *first, *lines])
