"""The terminal output of a study: a live table while it runs, and the results at its end."""

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
from border_cli.tune.trials import Study, TrialRow, rank_trials

BEST_WHILE_RUNNING, BEST_OF_ALL = 3, 10  # number of trials shown


class StudyPanel(LivePanel):
    """A live panel of the current runs and the best trials."""

    kind, hint = "trial", "Ctrl-C saves all running trials"
    other_lines = 13

    def show(self, running: Sequence[JobView], study: Study, rows: Sequence[TrialRow]) -> None:
        """Draws the runs of this command, the best trials and a summary, unless drawn recently."""
        self.draw(running, counts(study, rows), best_table(rank_trials(rows)[:BEST_WHILE_RUNNING]))


def counts(study: Study, rows: Sequence[TrialRow]) -> str:
    """Summarises the number of trials, their total cost, and the number of trials per status."""
    by_status = Counter(row.status for row in rows)
    states = ", ".join(f"{by_status[status]} {status}" for status in sorted(by_status))
    full_grid = study.trials * study.budgets[-1]  # steps of each seed
    cost = figures.percent(sum(row.budget for row in rows) / full_grid)
    return f"{len(rows)} of {study.trials} trials, cost {cost} of the full grid: {states}"


def interval(scores: Sequence[float]) -> str:
    """Formats the mean and its 95 % interval over seeds: `-78.2 [-81.3, -75.1]`."""
    return with_interval(mean_over_seeds(np.array(scores)))


def score_of(winner: TrialRow, fresh: Sequence[float]) -> str:
    """Formats the winner's score: `-78.2 [-81.3, -75.1] over 5 fresh seeds`. Without fresh seeds it
    is the score over the seeds of the search."""
    over = f"{len(fresh)} fresh seeds" if fresh else "the seeds that chose it"
    return f"{interval(fresh or winner.scores)} over {over}"


def best_table(rows: Sequence[TrialRow]) -> Table:
    """Builds a table of trials: scores, and as many hyperparameters as fit into the line."""
    table = terminal.make_table("trial", "score", "status")
    for column in table.columns:
        column.no_wrap = True
    table.add_column("hyperparameters")
    for row in rows:
        values = Text(row.values, no_wrap=True, overflow="ellipsis")
        table.add_row(str(row.number), interval(row.scores), row.status, values)
    return table


def print_best(study: Study, rows: Sequence[TrialRow], *lines: tuple[str, str]) -> None:
    """Prints the best trials, the state of the study, the values of the best trial, and `lines`."""
    console, best = terminal.make_console(), rank_trials(rows)
    console.print(best_table(best[:BEST_OF_ALL]))
    first = [("best", f"trial {row.number}: {row.values}") for row in best[:1]]
    terminal.header(console, [("trials", counts(study, rows)), *first, *lines])
