"""A sweep while it runs in processes: a live table on a terminal, a line for each end elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
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
        return progress_in(self.folder)


class SweepPanel:
    """Within the block shows the jobs that run; ends are printed above. Draws in `show` only."""

    def __init__(self, num_jobs: int, *, quiet: bool) -> None:
        self._num_jobs = num_jobs
        self._quiet = quiet
        self._console = terminal.make_console()
        self._counts: Counter[str] = Counter()
        self._live: LiveArea | None = None
        self._began_s = self._shown_s = time.monotonic()

    def __enter__(self) -> SweepPanel:
        panel_line.clear()
        if not self._quiet and self._console.is_interactive:
            self._live = LiveArea(self._console, transient=True)
        return self

    def __exit__(self, *rest: object) -> None:
        if self._live is not None:
            self._live.close()

    def ended(self, view: JobView, status: str, score: float | None, reason: str) -> None:
        """Says how a job ended, at once."""
        self._counts[status] += 1
        if self._quiet and status == "done":
            terminal.say(self._console, result_line(view.folder, read_run(view.folder)))
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
        terminal.say(self._console, text)

    def show(self, running: Sequence[JobView], num_waiting: int) -> None:
        """The jobs that run now; draws where it is time to."""
        now_s = time.monotonic()
        every_s = SAY_EVERY_S if self._live is None else DRAW_EVERY_S
        if self._quiet or now_s < self._shown_s + every_s:
            return
        self._shown_s = now_s
        if self._live is None:
            terminal.say(self._console, self._summary(len(running), num_waiting))
            return
        self._live.draw(self._table(running, num_waiting))

    def _summary(self, num_running: int, num_waiting: int) -> str:
        failed = sum(n for status, n in self._counts.items() if status not in STYLES)
        counts = [
            f"{self._counts['done']} of {self._num_jobs} jobs done",
            f"{num_running} running",
            f"{num_waiting} waiting" if num_waiting else "",
            f"{failed} failed" if failed else "",
            figures.duration(time.monotonic() - self._began_s),
        ]
        return "  ".join(filter(None, counts))

    def _table(self, running: Sequence[JobView], num_waiting: int) -> RenderableType:
        table = terminal.make_table("job")
        table.columns[0].no_wrap = True
        table.add_column("", ratio=1)  # the one that becomes narrower
        table.add_column("status", no_wrap=True)
        shown = FEW if self._console.width < NARROW else FIGURES
        for name in shown:
            table.add_column(name, justify="right", no_wrap=True)
        room = max(1, self._console.height - 6)
        for job in running[:room]:
            progress = job.progress
            starting = "waiting for a node" if job.waits else "starting"
            found = cells(progress)
            table.add_row(
                str(job.number),
                Text(job.label, no_wrap=True, overflow="ellipsis"),
                progress.get("phase", starting),
                *(found.get(name, "") for name in shown),
            )
        more = [Text(f"and {len(running) - room} more", style="dim")] if len(running) > room else []
        below = panel_line.text
        last = Text(
            below or f"{self._summary(len(running), num_waiting)}   {HINT}",
            style="bold" if below else "dim",
            no_wrap=True,
            overflow="ellipsis",
        )
        return Group(table, *more, last)


def progress_in(folder: Path) -> dict[str, Any]:
    """How far a run is, as its `run.json` says; empty while it is starting."""
    progress: dict[str, Any] = read_run(folder).get("progress", {})
    return progress


def cells(progress: Mapping[str, Any]) -> dict[str, str]:
    """The figures of a run, none of which are there while it is starting."""
    if not progress:
        return {}
    fraction = progress["fraction"]
    return {
        "updates": figures.count(progress["opt_steps"]),
        "done": "" if fraction is None else figures.percent(fraction),
        "score": figures.score(progress["score"]),
        "best": figures.score(progress["best"]),
        "updates/s": figures.rate(progress["updates_per_sec"]),
        "left": figures.duration(progress["left_s"]),
    }
