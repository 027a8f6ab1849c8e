"""The live panel and the plain line: two ways to draw a `RunView`."""

from __future__ import annotations

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from border_cli.recorder import figures
from border_cli.recorder.view import RunView

MIN_WIDTH, MIN_HEIGHT = 60, 12  # of a terminal that has room for the panel
MAX_LISTED_ACTORS = 3
MAX_WIDTH = 100
BUDGET_WORDS = {"opt": "updates", "env": "env steps", "time": "time"}
ENDED = "ended"  # the last phase: nothing is left of any budget then
HINT = "Ctrl-C stops the run and saves a checkpoint"


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
        f"queue {figures.percent(view.value('async/queue_fill'))}",
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
    queue = unit(figures.percent(value("async/queue_fill")), " full")
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
