"""A study in the terminal: a live table while it runs, lines where there is no terminal, and what
came out at its end."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from border_cli.analysis.statistics import mean_over_seeds
from border_cli.analysis.tables import number, with_interval
from border_cli.recorder import figures, terminal
from border_cli.recorder.live_area import LiveArea
from border_cli.recorder.panel_line import panel_line
from border_cli.sweep.panel import DRAW_EVERY_S, SAY_EVERY_S, cells, progress_in
from border_cli.tune.trials import (
    COMPLETE,
    ENDED,
    FAILED,
    PRUNED,
    RUNNING,
    WAITING,
    Study,
    TrialRow,
    ranked,
)
from border_cli.words import counted, shell_command, shortest

HINT = "Ctrl-C saves all running trials"
BEST_FILE = "best.yaml"
FIGURES = ("done", "score", "updates/s", "left")
NARROW, FEW = 80, ("done", "score", "left")  # columns of a terminal that has no room for more
BEST_WHILE_RUNNING, BEST_AT_THE_END = 3, 10  # trials
FIXED_ROWS = 15  # of the panel, besides the running runs


@dataclass(frozen=True, slots=True)
class RunView:
    """A run of a trial, on its way to a rung."""

    trial: int
    seed: int
    budget: int  # of the rung
    folder: Path


class StudyPanel:
    """Within the block shows the runs and the best trials; events are printed above. Draws in
    `show` and `event` only."""

    def __init__(self, study: Study, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._study = study
        self._clock_s = clock_s
        self._console = terminal.make_console()
        self._live: LiveArea | None = None
        self._began_s = self._shown_s = clock_s()
        self._began_steps: int | None = None  # of all trials, at the first `show`

    def __enter__(self) -> StudyPanel:
        panel_line.clear()
        if self._console.is_interactive:
            self._live = LiveArea(self._console, transient=True)
        return self

    def __exit__(self, *rest: object) -> None:
        if self._live is not None:
            self._live.close()

    def event(self, text: str) -> None:
        """Says what happened to a trial."""
        stamp = (f"[{time.strftime('%H:%M:%S')}] ", "dim")
        terminal.say(self._console, Text.assemble(stamp, text))

    def show(self, running: Sequence[RunView], rows: Sequence[TrialRow]) -> None:
        """The runs of this command and all trials as they are now; draws where it is time to."""
        now_s, steps = self._clock_s(), _steps(rows)
        if self._began_steps is None:
            self._began_steps = steps
        every_s = SAY_EVERY_S if self._live is None else DRAW_EVERY_S
        if now_s < self._shown_s + every_s:
            return
        self._shown_s = now_s
        progress = [progress_in(each.folder) for each in running]
        summary = ", ".join(self._summary(rows, progress, steps - self._began_steps))
        if self._live is None:
            terminal.say(self._console, summary)
            return
        self._live.draw(self._drawn(running, progress, rows, summary))

    def _summary(
        self, rows: Sequence[TrialRow], progress: Sequence[dict[str, Any]], trained: int
    ) -> Iterator[str]:
        """`trained`: steps of this command."""
        yield from counts(self._study, rows)
        elapsed_s = self._clock_s() - self._began_s
        yield f"{figures.duration(elapsed_s)} elapsed"
        if trained > 0:
            missing = expected_cost(self._study) - _steps(rows)
            of_runs_s = [each.get("left_s") or 0.0 for each in progress]
            left_s = max(missing * elapsed_s / trained, *of_runs_s, 0.0)
            yield f"about {figures.duration(left_s)} left"

    def _drawn(
        self,
        running: Sequence[RunView],
        progress: Sequence[dict[str, Any]],
        rows: Sequence[TrialRow],
        summary: str,
    ) -> RenderableType:
        width = self._console.width
        room = max(1, self._console.height - FIXED_ROWS)
        parts: list[RenderableType] = []
        if running:
            parts.append(_running_table(running[:room], progress, few=width < NARROW))
        if len(running) > room:
            parts.append(Text(f"and {len(running) - room} more", style="dim"))
        best = ranked(rows)[:BEST_WHILE_RUNNING]
        if best:
            parts.append(best_table(best, self._study, width=width, one_line=True))
        below = panel_line.text
        last = Text(below or HINT, "bold" if below else "dim", no_wrap=True, overflow="ellipsis")
        return Group(*parts, Text(summary), last)


def counts(study: Study, rows: Sequence[TrialRow]) -> Iterator[str]:
    """How many trials are in which state, the best one, and what all of them cost."""
    found = Counter(row.status for row in rows)
    yield f"{sum(found[each] for each in ENDED)} of {study.trials} trials ended"
    for status in (RUNNING, WAITING, PRUNED, FAILED):
        if found[status]:
            yield f"{found[status]} {status}"
    best = ranked(rows)
    if best:
        yield f"best {number(best[0].score or 0.0)} (trial {best[0].number})"
    yield f"cost {figures.percent(_steps(rows) / study.full_cost)} of the full grid"


def expected_cost(study: Study) -> float:
    """Steps of all trials if as many reach each rung as successive halving promotes: of trials the
    share 1 / r, where budgets grow by r."""
    budgets = study.budgets
    growth = (budgets[-1] / budgets[0]) ** (1 / max(1, len(budgets) - 1))
    parts = np.diff(budgets, prepend=0) / growth ** np.arange(len(budgets))
    return float(study.trials * study.seeds * parts.sum())


def score_text(row: TrialRow, *others: float) -> str:
    """`-78.2 ± 3.1`: the mean and half of its 95 % interval over seeds, with as many decimals as
    the largest of `others` has."""
    if row.score is None:
        return figures.UNKNOWN
    if len(row.scores) < 2:
        return number(row.score, *others)
    found = mean_over_seeds(np.array(row.scores))
    half = float(found.high - found.mid)
    return f"{number(row.score, half, *others)} ± {number(half, row.score, *others)}"


def values_text(row: TrialRow) -> str:
    """`learning_rate=6e-4 n_steps=3`, names without their groups where that tells them apart."""
    short = [name.rpartition(".")[2] for name in row.values]
    names = short if len({*short}) == len(short) else row.values
    pairs = zip(names, row.values.values(), strict=True)
    return " ".join(f"{name}={value}" for name, value in pairs if value)


def best_table(
    rows: Sequence[TrialRow], study: Study, *, width: int, one_line: bool
) -> RenderableType:
    """Trials with their scores; hyperparameters are cut to what there is room for, or wrapped."""
    table = terminal.make_table("trial", "score")
    early = width >= NARROW and any(row.budget < study.budgets[-1] for row in rows)
    if early:
        table.add_column(study.unit_name, justify="right")
    for column in table.columns:
        column.no_wrap = True
    table.add_column("best trials" if one_line else "hyperparameters", ratio=1)
    overflow: Any = "ellipsis" if one_line else "fold"
    scores = [row.score or 0.0 for row in rows]
    for row in rows:
        budget = [figures.count(row.budget)] if early else []
        values = Text(values_text(row), no_wrap=one_line, overflow=overflow)
        table.add_row(str(row.number), score_text(row, *scores), *budget, values)
    return table


def _running_table(
    running: Sequence[RunView], progress: Sequence[dict[str, Any]], *, few: bool
) -> RenderableType:
    shown = FEW if few else FIGURES
    table = terminal.make_table("trial", "seed", "to")
    table.add_column("status", no_wrap=True, ratio=1)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for view, found in zip(running, progress, strict=False):
        place = str(view.trial), str(view.seed), figures.count(view.budget)
        figure = cells(found)
        status = found.get("phase", "starting")
        table.add_row(*place, status, *(figure.get(name, "") for name in shown))
    return table


def print_outcome(
    folder: Path, study: Study, rows: Sequence[TrialRow], fresh: Sequence[float]
) -> None:
    """Prints the best trials, the winner with its score on fresh seeds, and what to type next.

    `fresh`: the winner's scores on those seeds, of as many as are known.
    """
    console = terminal.make_console()
    best = ranked(rows)
    if best:
        shown = best[:BEST_AT_THE_END]
        console.print(best_table(shown, study, width=console.width, one_line=False))
    console.print(", ".join(counts(study, rows)), soft_wrap=not console.is_terminal)
    terminal.header(console, list(_outcome(folder, study, best, fresh)))


def _outcome(
    folder: Path, study: Study, best: Sequence[TrialRow], fresh: Sequence[float]
) -> Iterator[tuple[str, str]]:
    shown = shlex.quote(str(shortest(folder)))
    commands = [f"{shell_command('border-plot')} {shown}"]
    if best and best[0].status == COMPLETE:
        seeds = counted(study.seeds, "seed")
        yield "winner", f"trial {best[0].number}, {score_text(best[0])} over its {seeds}"
        if fresh:
            found = with_interval(mean_over_seeds(np.array(fresh)))
            yield "fresh seeds", f"{found} over {counted(len(fresh), 'fresh seed')}"
    if (folder / BEST_FILE).is_file():
        yield "settings", str(shortest(folder / BEST_FILE))
        choices = f"agent={study.agent} env={study.env}"
        commands += [
            f"mkdir -p conf/experiment && cp {shown}/{BEST_FILE} conf/experiment/",
            f"{shell_command('border-train')} -cd conf experiment=best {choices}",
        ]
    yield "next", "\n".join(commands)


def _steps(rows: Sequence[TrialRow]) -> int:
    return sum(row.steps for row in rows)
