"""The progress of a run as it is shown: a live panel on a terminal, lines elsewhere."""

from __future__ import annotations

import math

from rich.console import Console, RenderableType

from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder import figures
from border_cli.recorder.config import ConsoleConfig
from border_cli.recorder.live_area import LiveArea
from border_cli.recorder.panel import ENDED, RunView, line, panel
from border_cli.recorder.panel_line import panel_line
from border_cli.recorder.terminal import make_console, say
from border_cli.system.machine import machine_bytes, resident_bytes

DRAW_INTERVAL_S = 0.5  # of run time; one drawing costs the learner some milliseconds
FIRST_LINE_S = 2.0  # soon enough to see that it runs, late enough for some numbers


class ConsoleRecorder(Recorder):
    """Draws within `show` and `close` only, in the caller's thread: it has none of its own."""

    def __init__(
        self, config: ConsoleConfig, *, info: RunInfo, console: Console | None = None
    ) -> None:
        self._line_interval_s = config.line_interval_s
        self._console = console or make_console()
        self._view = RunView(info)
        self._live: LiveArea | None = None
        self._drawn_s = -math.inf
        self._drawn_phase = ""
        self._line_due_s: float | None = None
        self._line_step: RecordStep | None = None
        self._shows = not info.quiet
        panel_line.clear()  # of the job before

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        if not self._shows:
            return
        self._view.take_progress(progress)
        if self._console.is_interactive:
            self._draw_if_due()
        else:
            self._say_if_due()

    def close(self) -> None:
        """Leaves the last state on the screen and the terminal as it was."""
        if not self._shows:
            return
        self._shows = False
        self._view.phase = ENDED
        if self._live is not None:
            self._live.draw(self._panel())
            self._live.close()
        elif self._line_due_s is not None and self._line_step != self._view.step:
            self._say_line()

    def _draw_if_due(self) -> None:
        now_s, phase = self._view.step.time_s, self._view.phase
        if now_s < self._drawn_s + DRAW_INTERVAL_S and phase == self._drawn_phase:
            return
        self._drawn_s, self._drawn_phase = now_s, phase
        if self._live is None:
            self._live = LiveArea(self._console)
        self._live.draw(self._panel())

    def _panel(self) -> RenderableType:
        return panel(self._view, _memory(), notice=panel_line.text)

    def _say_if_due(self) -> None:
        now_s = self._view.step.time_s
        if self._line_due_s is None:
            self._line_due_s = now_s + min(FIRST_LINE_S, self._line_interval_s)
        if now_s >= self._line_due_s:
            self._line_due_s = now_s + self._line_interval_s
            self._say_line()

    def _say_line(self) -> None:
        self._line_step = self._view.step
        say(self._console, line(self._view, _memory()))


def _memory() -> str:
    return f"{figures.memory(resident_bytes())} of {figures.memory(machine_bytes())}"
