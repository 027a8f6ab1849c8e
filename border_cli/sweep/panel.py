"""Progress of a sweep: a live table on a terminal, otherwise a line every 30 s. Each job that ends
gets a line of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.console import Group, RenderableType
from rich.text import Text

from border_cli.launch.closing import result_line
from border_cli.recorder import figures, terminal
from border_cli.recorder.live_area import LiveArea
from border_cli.recorder.panel_line import panel_line
from border_cli.run.status import read_run

DRAW_EVERY_S = 0.5
SAY_EVERY_S = 30.0  # interval without a terminal
FIGURES = ("updates", "done", "score", "best", "updates/s", "left")
NARROW, FEW = 80, ("done", "best", "left")  # width and columns of a narrow terminal
STYLES = {"done": "green", "interrupted": "yellow", "in use": "yellow"}


@dataclass(slots=True)
class JobView:
    """A running job, as shown in the panel."""

    number: int
    label: str  # swept overrides, or the seed of a trial's run
    folder: Path
    waits: bool = False  # whether it waits for a machine


class LivePanel:
    """Within the block, shows jobs and a summary at the bottom of a terminal. Uses no thread."""

    kind, hint = "job", "Ctrl-C saves all running jobs"
    other_lines = 6  # lines besides those of the jobs

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = terminal.make_console()
        self._live: LiveArea | None = None
        self._began_s = self._shown_s = time.monotonic()

    def __enter__(self) -> Self:
        panel_line.clear()
        if not self._quiet and self._console.is_interactive:
            self._live = LiveArea(self._console, transient=True)
        return self

    def __exit__(self, *rest: object) -> None:
        if self._live is not None:
            self._live.close()

    def event(self, *text: str | tuple[str, str]) -> None:
        """Prints an event immediately. Parts of the text may have a style."""
        stamp = f"[{time.strftime('%H:%M:%S')}] "
        terminal.say(self._console, Text.assemble((stamp, "dim"), *text))

    def draw(self, running: Sequence[JobView], summary: str, *others: RenderableType) -> None:
        """Draws the running jobs, `others` and a summary, unless they were drawn recently."""
        now_s = time.monotonic()
        every_s = SAY_EVERY_S if self._live is None else DRAW_EVERY_S
        if self._quiet or now_s < self._shown_s + every_s:
            return
        self._shown_s = now_s
        summary = f"{summary}  {figures.duration(now_s - self._began_s)}"
        if self._live is None:
            terminal.say(self._console, summary)
            return
        message = panel_line.text
        last = Text(
            message or f"{summary}   {self.hint}",
            style="bold" if message else "dim",
            no_wrap=True,
            overflow="ellipsis",
        )
        self._live.draw(Group(*self._table(running), *others, last))

    def _table(self, running: Sequence[JobView]) -> Iterator[RenderableType]:
        table = terminal.make_table(self.kind)
        table.columns[0].no_wrap = True
        table.add_column("", ratio=1)  # this column shrinks first
        table.add_column("status", no_wrap=True)
        shown = FEW if self._console.width < NARROW else FIGURES
        for name in shown:
            table.add_column(name, justify="right", no_wrap=True)
        room = max(1, self._console.height - self.other_lines)
        for job in running[:room]:
            status, cells = _row(job)
            table.add_row(
                str(job.number),
                Text(job.label, no_wrap=True, overflow="ellipsis"),
                status,
                *(cells.get(name, "") for name in shown),
            )
        yield table
        if len(running) > room:
            yield Text(f"and {len(running) - room} more", style="dim")


class SweepPanel(LivePanel):
    """The running jobs of a sweep and the number of jobs that have ended."""

    def __init__(self, num_jobs: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._num_jobs = num_jobs
        self._counts: Counter[str] = Counter()

    def report_end(self, view: JobView, status: str, score: float | None, reason: str) -> None:
        """Reports the end of a job immediately."""
        self._counts[status] += 1
        if self._quiet and status == "done":
            terminal.say(self._console, result_line(view.folder))
            return
        num_ended = sum(self._counts.values())
        if status == "done":
            details = "" if score is None else f", score {figures.score(score)}"
        else:
            details = f": {reason}"
        self.event(
            f"job {view.number}",
            f" ({view.label}): " if view.label else ": ",
            (status, STYLES.get(status, "bold red")),
            details,
            (f"  ({num_ended} of {self._num_jobs} ended)", "dim"),
        )

    def show(self, running: Sequence[JobView], num_waiting: int) -> None:
        """Draws the running jobs, unless they were drawn recently."""
        failed = sum(n for status, n in self._counts.items() if status not in STYLES)
        counts = [
            f"{self._counts['done']} of {self._num_jobs} jobs done",
            f"{len(running)} running",
            f"{num_waiting} waiting" if num_waiting else "",
            f"{failed} failed" if failed else "",
        ]
        self.draw(running, "  ".join(filter(None, counts)))


def _row(job: JobView) -> tuple[str, dict[str, str]]:
    """Returns the status of a job and its figures, which are empty until it has started."""
    progress = read_run(job.folder).get("progress")
    if not progress:
        return "waiting for a node" if job.waits else "starting", {}
    fraction = progress["fraction"]
    return progress["phase"], {
        "updates": figures.count(progress["opt_steps"]),
        "done": "" if fraction is None else figures.percent(fraction),
        "score": figures.score(progress["score"]),
        "best": figures.score(progress["best"]),
        "updates/s": figures.rate(progress["updates_per_sec"]),
        "left": figures.duration(progress["left_s"]),
    }
