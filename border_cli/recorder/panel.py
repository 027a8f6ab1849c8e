"""The newest state of a running run, and two ways to draw it: the live panel and the plain line."""

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

MIN_WIDTH, MIN_HEIGHT = 60, 12  # of a terminal that has room for the panel
MAX_LISTED_ACTORS = 3
MAX_WIDTH = 100
BUDGET_WORDS = {"opt": "updates", "env": "env steps", "time": "time"}
ENDED = "ended"  # the last phase: nothing is left of any budget then
HINT = "Ctrl-C stops the run and saves a checkpoint"
MAX_SCORES = 12  # evaluations that the small curve shows
RATE_SPAN_S = 5.0  # rates are means over the last seconds: samples arrive in bursts
ACTOR_RATES_S = 2.5  # in which a change of an actor's rate is mostly shown


@dataclass(frozen=True, slots=True)
class Budget:
    """One of the limits that end a run."""

    unit: str  # opt, env or time
    done: float
    limit: float
    left_s: float | None  # at the pace since learning began; None where there is none yet

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.limit)


@dataclass(frozen=True, slots=True)
class Rates:
    """Means over the last seconds; None where nothing is known yet."""

    updates: float | None = None  # per second
    samples: float | None = None  # per second
    ratio: float | None = None  # samples per update


class RunView:
    """The newest values of everything; owned by the recorder that draws."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.step = RecordStep(opt_steps=0, env_steps=0, time_s=0.0)
        self.phase = ""
        self.problem: str | None = None  # what goes wrong just now
        self.best = info.best  # score, opt steps
        self.scores: deque[float] = deque(maxlen=MAX_SCORES)
        self._values: dict[str, float] = {}
        self._pace_from: RecordStep | None = None
        self._moments: deque[tuple[float, int, int]] = deque()  # time_s, updates, samples
        self._actor_rates: dict[int, float] = {}  # samples per second, by the actor's id
        self._rates_s = 0.0  # when they were taken

    def take_row(self, step: RecordStep, metrics: Metrics) -> None:
        """A row of metrics, maybe with an evaluation."""
        if rates := _actor_rates(metrics):
            self._take_actor_rates(step.time_s, rates)
        self._move_to(step)
        self._values.update(metrics)
        if "eval/return" not in metrics:
            return
        score = metrics["eval/return"]
        self.scores.append(score)
        if math.isfinite(score) and (self.best is None or score > self.best[0]):
            self.best = (score, step.opt_steps)

    def _take_actor_rates(self, time_s: float, rates: dict[int, float]) -> None:
        newest = 1 - math.exp((self._rates_s - time_s) / ACTOR_RATES_S)  # its share in the mean
        self._rates_s = time_s
        for actor_id, rate in rates.items():
            before = self._actor_rates.get(actor_id, rate)
            self._actor_rates[actor_id] = before + newest * (rate - before)

    def take_progress(self, progress: Progress) -> None:
        """Where the run stands now."""
        if (progress.phase == "warm-up") != (self.phase == "warm-up"):
            self._moments.clear()  # what is collected without updates says nothing about learning
        self._move_to(progress.step)
        self.phase, self.problem = progress.phase, progress.problem
        self._values.update(progress.gauges)
        if progress.phase in ("warm-up", "learning"):
            self._take_moment(progress)

    def _take_moment(self, progress: Progress) -> None:
        step, moments = progress.step, self._moments
        moments.append((step.time_s, step.opt_steps, progress.samples_total))
        while len(moments) > 2 and step.time_s - moments[1][0] >= RATE_SPAN_S:
            moments.popleft()

    def rates(self) -> Rates:
        """Updates and samples per second, and samples per update."""
        if not self._moments:
            return Rates()
        (began_s, *before), (now_s, *now) = self._moments[0], self._moments[-1]
        passed_s = now_s - began_s
        if passed_s <= 0:
            return Rates()
        updates, samples = (new - old for old, new in zip(before, now, strict=True))
        ratio = samples / updates if updates else None
        return Rates(updates / passed_s, samples / passed_s, ratio)

    def value(self, name: str) -> float | None:
        """The newest value of a metric, or None."""
        return self._values.get(name)

    def actor_rates(self) -> list[float]:
        """Samples per second of each actor, by id: running means over the last seconds."""
        rates = self._actor_rates or _actor_rates(self._values)
        return [rates[actor_id] for actor_id in sorted(rates)]

    def nearest_budget(self) -> Budget | None:
        """The limit that will be reached first, or None for a run without one."""
        budgets = self._budgets()
        timed = [each for each in budgets if each.left_s is not None]
        if timed:
            return min(timed, key=lambda each: each.left_s or 0.0)
        return max(budgets, key=lambda each: each.fraction, default=None)

    def _move_to(self, step: RecordStep) -> None:
        """The pace is measured anew from where learning begins: warm-up says nothing about it.

        Nor do earlier attempts of a resumed run, which may have to fill its replay buffer again.
        """
        waited = self.step.opt_steps == 0 or self.phase == "warm-up"
        if self._pace_from is None or (waited and step.opt_steps > self.step.opt_steps):
            self._pace_from = step
        self.step = step

    def _budgets(self) -> list[Budget]:
        start, now = self._pace_from or self.step, self.step
        limits = (
            ("opt", start.opt_steps, now.opt_steps, self.info.max_opt_steps),
            ("env", start.env_steps, now.env_steps, self.info.max_env_steps),
            ("time", start.time_s, now.time_s, self.info.max_time_s),
        )
        passed_s = now.time_s - start.time_s
        budgets = []
        for unit, before, done, limit in limits:
            if limit is None:
                continue
            left_s = None
            if unit == "time":
                left_s = max(0.0, limit - done)
            elif done > before and passed_s > 0:
                left_s = max(0.0, limit - done) * passed_s / (done - before)
            budgets.append(Budget(unit, done, limit, left_s))
        return budgets


def _actor_rates(metrics: Metrics) -> dict[int, float]:
    rates: dict[int, float] = {}
    for name, value in metrics.items():
        space, _, rest = name.partition("/")
        actor_id, _, metric = rest.partition("/")
        if space == "actor" and metric == "samples_per_sec" and actor_id.isdigit():
            rates[int(actor_id)] = value
    return rates


def panel(
    view: RunView, memory: str, blocks: str, *, hint: str = HINT, notice: str = ""
) -> RenderableType:
    """Eleven lines, and one more while there is a problem.

    `memory` is ready to read; `blocks` are the characters of the small curve. The line below the
    frame shows `notice`, which a signal handler may have written there, or else `hint`.
    """
    below = notice or ("" if view.phase == ENDED else hint)
    last = [Text(below, style="bold" if notice else "dim", no_wrap=True, overflow="ellipsis")]
    return Group(_frame(view, memory, blocks), *(last if below else []))


def _frame(view: RunView, memory: str, blocks: str) -> Panel:
    title = Text(view.info.name, style="bold not dim")
    if view.phase:
        title.append(f"  {view.phase}", style="cyan not dim")
    return Panel(
        Group(*_problem(view), _bar(view), _table(view, memory, blocks)),
        box=ROUNDED,
        title=title,
        title_align="left",
        border_style="dim",
        width=MAX_WIDTH,  # at most: a narrower terminal has a narrower panel
    )


def line(view: RunView, memory: str) -> str:
    """The same in one plain line."""
    nearest = view.nearest_budget()
    left = figures.duration(nearest.left_s if nearest else None)
    best = figures.score(view.best[0] if view.best else None)
    rates = view.rates()
    samples = [
        f"{figures.rate(rates.samples)} samples/s",
        f"{figures.ratio(rates.ratio)} samples/update",
        f"queue {figures.percent(view.value('async/queue_fill'))}{_network(view)}",
        f"buffer {figures.percent(view.value('async/buffer_fill'))}",
        f"lag {figures.count(view.value('async/weight_lag'))}",
    ]
    parts = [
        view.phase,
        f"PROBLEM: {_first_line(view.problem)}" if view.problem else "",
        _done(view, "opt"),
        _done(view, "env") if view.info.samples else "",
        f"eval {figures.score(view.value('eval/return'))} (best {best})",
        f"{figures.rate(rates.updates)} updates/s",
        *(samples if view.info.samples else []),
        memory,
        _done(view, "time"),
        "" if view.phase == ENDED else f"left {left}",
    ]
    return "  ".join(part for part in parts if part)


def _problem(view: RunView) -> list[RenderableType]:
    if not view.problem:
        return []
    text = _first_line(view.problem)
    return [Text(text, style="bold red", no_wrap=True, overflow="ellipsis")]


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def _bar(view: RunView) -> RenderableType:
    nearest = view.nearest_budget()
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    if nearest is None:
        row.add_row(Text("no limit except the target score", style="dim"), "")
        return row
    left = [("  ", ""), (figures.duration(nearest.left_s), "bold"), (" left", "dim")]
    row.add_row(
        ProgressBar(total=1.0, completed=nearest.fraction, complete_style="cyan"),
        Text.assemble(
            (figures.percent(nearest.fraction), "bold"),
            (f" of {BUDGET_WORDS[nearest.unit]}", "dim"),
            *(left if view.phase != ENDED else []),
        ),
    )
    return row


def _table(view: RunView, memory: str, blocks: str) -> RenderableType:
    """Pairs of label and value, two pairs per line."""
    table = Table.grid(expand=True, padding=(0, 1))
    for _ in range(2):
        table.add_column(style="dim", no_wrap=True, width=10)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in _rows(view, memory, blocks):
        table.add_row(*row)
    return table


def _rows(view: RunView, memory: str, blocks: str) -> list[tuple[str, Text, str, Text]]:
    value, unit, rates = view.value, _with_unit, view.rates()
    updates = Text(figures.rate(rates.updates))
    samples = Text(figures.rate(rates.samples))
    per_update = unit(figures.ratio(rates.ratio), " samples")
    queue = unit(figures.percent(value("async/queue_fill")), f" full{_network(view)}")
    buffer = unit(figures.percent(value("async/buffer_fill")), " full")
    behind = figures.count(value("async/weight_lag"))
    lag = unit(behind, " update" if behind == "1" else " updates")
    episodes = unit(figures.score(value("episode/return")), " return")
    steps = [Text(_steps(view, each, " of ")) for each in ("opt", "env", "time")]
    if not view.info.samples:
        return [
            ("updates", steps[0], "time", steps[2]),
            ("best eval", _best(view), "last eval", _last(view, blocks)),
            ("updates/s", updates, "memory", Text(memory)),
        ]
    return [
        ("updates", steps[0], "env steps", steps[1]),
        ("best eval", _best(view), "last eval", _last(view, blocks)),
        ("updates/s", updates, "samples/s", samples),
        ("per update", per_update, "per actor", Text(_actors(view))),
        ("queue", queue, "buffer", buffer),
        ("weight lag", lag, "memory", Text(memory)),
        ("episodes", episodes, "time", steps[2]),
    ]


def _network(view: RunView) -> str:
    """Of actors on a cluster: the share of their calls' time that the network took."""
    share = view.value("time/network/transfer")
    return "" if share is None else f", network {figures.percent(share)}"


def _best(view: RunView) -> Text:
    if view.best is None:
        return Text(figures.UNKNOWN)
    score, opt_steps = view.best
    return Text.assemble((figures.score(score), "bold green"), f" at {figures.count(opt_steps)}")


def _last(view: RunView, blocks: str) -> Text:
    last = figures.score(view.value("eval/return"))
    return Text.assemble((last, "bold"), " ", (figures.sparkline(view.scores, blocks), "green"))


def _steps(view: RunView, unit: str, of: str) -> str:
    """What is done of one budget, and its limit where there is one."""
    step, info = view.step, view.info
    done, limit = {
        "opt": (step.opt_steps, info.max_opt_steps),
        "env": (step.env_steps, info.max_env_steps),
        "time": (step.time_s, info.max_time_s),
    }[unit]
    as_text = figures.duration if unit == "time" else figures.count
    if limit is None:
        return as_text(done)
    return f"{as_text(done)}{of}{as_text(limit)}"


def _done(view: RunView, unit: str) -> str:
    """`updates 12,300/20,000 (62 %)`: the percentage only of the limit that comes first."""
    nearest = view.nearest_budget()
    done = f"{BUDGET_WORDS[unit]} {_steps(view, unit, '/')}"
    if nearest is None or nearest.unit != unit:
        return done
    return f"{done} ({figures.percent(nearest.fraction)})"


def _with_unit(figure: str, unit: str) -> Text:
    return Text(figure if figure == figures.UNKNOWN else f"{figure}{unit}")


def _actors(view: RunView) -> str:
    """Each actor's rate; the lowest and the highest where there are many."""
    rates = view.actor_rates()
    if not rates:
        return figures.UNKNOWN
    if len(rates) <= MAX_LISTED_ACTORS:
        return " ".join(figures.rate(rate) for rate in rates) + " /s"
    return f"{figures.rate(min(rates))} to {figures.rate(max(rates))} /s"
