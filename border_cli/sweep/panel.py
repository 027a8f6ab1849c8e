"""A sweep while it runs in processes: a live table on a terminal, a line for each end elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from border_cli.launch.closing import result_line
from border_cli.recorder import figures, terminal
from border_cli.recorder.live_area import LiveArea
from border_cli.recorder.panel_line import panel_line
from border_cli.run.status import read_run

DRAW_EVERY_S = 0.5
SAY_EVERY_S = 30.0  # where there is no terminal
HINT = "Ctrl-C saves all running jobs"
FIGURES = ("updates", "done", "score", "best", "updates/s", "left")
NARROW, FEW = 80, ("done", "best", "left")  # columns of a terminal that has no room for more
STYLES = {"done": "green", "interrupted": "yellow", "in use": "yellow"}


@dataclass(slots=True)
class JobView:
    """A job that runs."""

    number: int
    label: str  # what is swept, as typed
    folder: Path
    waits: bool = False  # for a machine

    @property
    def progress(self) -> dict[str, Any]:
        """How far it is, as its `run.json` says; empty while it is starting."""
        progress: dict[str, Any] = read_run(self.folder).get("progress", {})
        return progress


class LivePanel:
    """Within the block keeps an area on the terminal that can be drawn again; has no thread."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = terminal.make_console()
        self.live: LiveArea | None = None
        self._began_s = self._shown_s = time.monotonic()

    def __enter__(self) -> Self:
        panel_line.clear()
        if not self.quiet and self.console.is_interactive:
            self.live = LiveArea(self.console, transient=True)
        return self

    def __exit__(self, *rest: object) -> None:
        if self.live is not None:
            self.live.close()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def due(self) -> bool:
        """Whether it is time to draw, or to say a line where there is no terminal."""
        now_s = time.monotonic()
        every_s = SAY_EVERY_S if self.live is None else DRAW_EVERY_S
        if self.quiet or now_s < self._shown_s + every_s:
            return False
        self._shown_s = now_s
        return True


class SweepPanel(LivePanel):
    """Within the block shows the jobs that run; ends are printed above. Draws in `show` only."""

    def __init__(self, num_jobs: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._num_jobs = num_jobs
        self._counts: Counter[str] = Counter()

    def ended(self, view: JobView, status: str, score: float | None, reason: str) -> None:
        """Says how a job ended, at once."""
        self._counts[status] += 1
        if self.quiet and status == "done":
            terminal.say(self.console, result_line(view.folder, read_run(view.folder)))
            return
        ended = sum(self._counts.values())
        text = Text.assemble(
            (f"[{time.strftime('%H:%M:%S')}] ", "dim"),
            f"job {view.number}",
            f" ({view.label}): " if view.label else ": ",
            (status, STYLES.get(status, "bold red")),
        )
        if status == "done":
            text.append("" if score is None else f", score {figures.score(score)}")
        else:
            text.append(f": {reason}")
        text.append(f"  ({ended} of {self._num_jobs} ended)", style="dim")
        terminal.say(self.console, text)

    def show(self, running: Sequence[JobView], num_waiting: int) -> None:
        """The jobs that run now; draws where it is time to."""
        if not self.due():
            return
        if self.live is None:
            terminal.say(self.console, self._summary(len(running), num_waiting))
            return
        self.live.draw(self._drawn(running, num_waiting))

    def _summary(self, num_running: int, num_waiting: int) -> str:
        failed = sum(n for status, n in self._counts.items() if status not in STYLES)
        counts = [
            f"{self._counts['done']} of {self._num_jobs} jobs done",
            f"{num_running} running",
            f"{num_waiting} waiting" if num_waiting else "",
            f"{failed} failed" if failed else "",
            figures.duration(self.elapsed_s),
        ]
        return "  ".join(filter(None, counts))

    def _drawn(self, running: Sequence[JobView], num_waiting: int) -> RenderableType:
        room = max(1, self.console.height - 6)
        more = [Text(f"and {len(running) - room} more", style="dim")] if len(running) > room else []
        last = footer(f"{self._summary(len(running), num_waiting)}   {HINT}")
        return Group(jobs_table(self.console, running[:room]), *more, last)


def footer(text: str) -> Text:
    """The last line of a panel: this, unless there is a message."""
    below = panel_line.text
    style = "bold" if below else "dim"
    return Text(below or text, style, no_wrap=True, overflow="ellipsis")


def jobs_table(console: Console, running: Sequence[JobView], kind: str = "job") -> Table:
    """A row for each job that runs, with its figures."""
    table = terminal.make_table(kind)
    table.columns[0].no_wrap = True
    table.add_column("", ratio=1)  # the one that becomes narrower
    table.add_column("status", no_wrap=True)
    shown = FEW if console.width < NARROW else FIGURES
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for job in running:
        status, found = _row(job)
        table.add_row(
            str(job.number),
            Text(job.label, no_wrap=True, overflow="ellipsis"),
            status,
            *(found.get(name, "") for name in shown),
        )
    return table


def _row(job: JobView) -> tuple[str, dict[str, str]]:
    """The status of a job, and its figures, none of which are there while it is starting."""
    found = job.progress
    if not found:
        return "waiting for a node" if job.waits else "starting", {}
    fraction = found["fraction"]
    return found["phase"], {
        "updates": figures.count(found["opt_steps"]),
        "done": "" if fraction is None else figures.percent(fraction),
        "score": figures.score(found["score"]),
        "best": figures.score(found["best"]),
        "updates/s": figures.rate(found["updates_per_sec"]),
        "left": figures.duration(found["left_s"]),
    }
