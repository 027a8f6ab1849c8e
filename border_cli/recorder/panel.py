"""The current state of a run, shown as a live panel or as a plain line."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder import figures

STYLES = {"best eval": "bold green", "last eval": "bold"}  # label -> style of the value
ENDED = "ended"  # the last phase, in which no remaining time is shown
HINT = "Ctrl-C stops the run and saves a checkpoint"
RATE_SPAN_S = 30.0  # window over which rates are averaged, because samples arrive in bursts


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit that ends a run."""

    unit: str  # updates, env steps or time
    done: float
    limit: float
    left_s: float  # estimate at the current rate; infinite if the rate is 0

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.limit)


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second over the last `RATE_SPAN_S` seconds; 0 until they can be measured."""

    updates: float = 0.0
    env_steps: float = 0.0
    samples: float = 0.0


class RunView:
    """The latest values of all metrics and counters; owned by the recorder that draws them."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.step = RecordStep(opt_steps=0, env_steps=0, time_s=0.0)
        self.phase = ""
        self.problem = ""  # current problem, in one line
        self.best = info.best  # score and number of updates
        self._values: dict[str, float] = {}
        self._recent: deque[Progress] = deque()  # progress of the last `RATE_SPAN_S` seconds

    def take_row(self, step: RecordStep, metrics: Metrics) -> None:
        """Updates the values with a row of metrics, which may contain an evaluation."""
        self.step = step
        self._values.update(metrics)
        score = metrics.get("eval/return", math.nan)
        if math.isfinite(score) and (self.best is None or score > self.best[0]):
            self.best = (score, step.opt_steps)

    def take_progress(self, progress: Progress) -> None:
        """Updates the phase, the counters and the rates."""
        if (progress.phase == "warm-up") != (self.phase == "warm-up"):
            self._recent.clear()  # rates without updates do not predict rates while learning
        self.step = progress.step
        self.phase = progress.phase
        self.problem = (progress.problem or "").strip().partition("\n")[0]
        self._values.update(progress.gauges)
        if progress.phase in ("warm-up", "learning"):
            recent, now_s = self._recent, progress.step.time_s
            recent.append(progress)
            while len(recent) > 1 and now_s - recent[1].step.time_s >= RATE_SPAN_S:
                recent.popleft()

    def rates(self) -> Rates:
        """Returns the current rates."""
        if len(self._recent) < 2:
            return Rates()
        first, last = self._recent[0], self._recent[-1]
        passed_s = last.step.time_s - first.step.time_s or math.inf
        return Rates(
            updates=(last.step.opt_steps - first.step.opt_steps) / passed_s,
            env_steps=(last.step.env_steps - first.step.env_steps) / passed_s,
            samples=(last.samples_total - first.samples_total) / passed_s,
        )

    def value(self, name: str) -> float | None:
        """Returns the latest value of a metric, or None."""
        return self._values.get(name)

    def nearest_budget(self) -> Budget | None:
        """Returns the limit on updates, env steps or time that is reached first, or None."""
        now, info, rates = self.step, self.info, self.rates()
        limits = (
            ("updates", now.opt_steps, info.max_opt_steps, rates.updates),
            ("env steps", now.env_steps, info.max_env_steps, rates.env_steps),
            ("time", now.time_s, info.max_time_s, 1.0),
        )
        budgets = [
            Budget(unit, done, limit, max(0.0, limit - done) / rate if rate > 0 else math.inf)
            for unit, done, limit, rate in limits
            if limit is not None
        ]
        return min(budgets, key=lambda budget: (budget.left_s, -budget.fraction), default=None)


def panel(view: RunView, memory: str, *, notice: str = "") -> RenderableType:
    """Builds the live panel: at most eleven lines, and one more while there is a problem.

    `memory` is already formatted. The line below the frame shows `notice`, a message from a signal
    handler; if it is empty, the line explains how to stop the run.
    """
    title = Text(view.info.name, style="bold not dim")
    if view.phase:
        title.append(f"  {view.phase}", style="cyan not dim")
    problem = [_one_line(view.problem, "bold red")] if view.problem else []
    frame = Panel(
        Group(*problem, _bar(view), _table(_figures(view, memory))),
        box=ROUNDED,
        title=title,
        title_align="left",
        border_style="dim",
    )
    if view.phase == ENDED and not notice:
        return frame
    return Group(frame, _one_line(notice or HINT, "bold" if notice else "dim"))


def line(view: RunView, memory: str) -> str:
    """Formats the figures of the panel as a plain line."""
    nearest = view.nearest_budget()
    parts = [
        view.phase,
        f"PROBLEM: {view.problem}" if view.problem else "",
        *(f"{label} {value}" for label, value in _figures(view, memory)),
        f"{figures.percent(nearest.fraction)} of {nearest.unit}" if nearest else "",
        f"left {figures.duration(nearest.left_s)}" if nearest and view.phase != ENDED else "",
    ]
    return "  ".join(part for part in parts if part)


def _one_line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _bar(view: RunView) -> RenderableType:
    nearest = view.nearest_budget()
    if nearest is None:
        return Text("no limit on updates, env steps or time", style="dim")
    text = Text.assemble(
        (figures.percent(nearest.fraction), "bold"),
        (f" of {nearest.unit}", "dim"),
    )
    if view.phase != ENDED:
        text.append(f"  {figures.duration(nearest.left_s)}", style="bold")
        text.append(" left", style="dim")
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    row.add_row(ProgressBar(1.0, nearest.fraction, complete_style="cyan"), text)
    return row


def _table(pairs: list[tuple[str, str]]) -> RenderableType:
    """Builds a table with two labels and their values per line."""
    table = Table.grid(expand=True, padding=(0, 1))
    for _ in range(2):
        table.add_column(style="dim", no_wrap=True, width=10)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    cells = [cell for label, value in pairs for cell in (label, Text(value, STYLES.get(label, "")))]
    for first in range(0, len(cells), 4):
        table.add_row(*cells[first : first + 4])
    return table


def _figures(view: RunView, memory: str) -> list[tuple[str, str]]:
    """Returns labels and figures; without actors the figures about samples are omitted."""
    value, step, info, rates = view.value, view.step, view.info, view.rates()
    share = value("time/network/transfer")  # fraction of the call time of remote actors
    network = "" if share is None else f", network {figures.percent(share)}"
    ratio = rates.samples / rates.updates if rates.updates else None
    best = figures.UNKNOWN
    if view.best is not None:
        best = f"{figures.score(view.best[0])} at {figures.count(view.best[1])}"
    has_samples = info.samples
    entries = [
        ("updates", _of(step.opt_steps, info.max_opt_steps, figures.count), True),
        ("env steps", _of(step.env_steps, info.max_env_steps, figures.count), has_samples),
        ("best eval", best, True),
        ("last eval", figures.score(value("eval/return")), True),
        ("updates/s", figures.rate(rates.updates), True),
        ("samples/s", figures.rate(rates.samples), has_samples),
        ("per update", f"{figures.ratio(ratio)} samples", has_samples),
        ("return", figures.score(value("episode/return")), has_samples),
        ("queue", f"{figures.percent(value('async/queue_fill'))}{network}", has_samples),
        ("buffer", figures.percent(value("async/buffer_fill")), has_samples),
        ("weight lag", figures.count(value("async/weight_lag")), has_samples),
        ("memory", memory, True),
        ("time", _of(step.time_s, info.max_time_s, figures.duration), True),
    ]
    return [(label, figure) for label, figure, applies in entries if applies]


def _of(done: float, limit: float | None, form: figures.Figure) -> str:
    """Formats the progress towards a limit: `done of limit`, or only `done` without a limit."""
    return form(done) if limit is None else f"{form(done)} of {form(limit)}"
