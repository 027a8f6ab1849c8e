"""A recorder that shows progress: a live panel on a terminal, otherwise status lines."""

from __future__ import annotations

from rich.console import Console, RenderableType

from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.config import ConsoleConfig
from border_cli.recorder.live_area import LiveArea
from border_cli.recorder.panel import ENDED, RunView, line, panel
from border_cli.recorder.panel_line import panel_line
from border_cli.recorder.terminal import make_console, say
from border_cli.system.machine import machine_bytes, resident_bytes
from border_cli.words import size

DRAW_INTERVAL_S = 0.5  # run time between redraws; a redraw costs the learner a few milliseconds
FIRST_LINE_S = 2.0  # early enough to show that the run works, late enough to have some values


class ConsoleRecorder(Recorder):
    """Shows a run on the terminal. Draws only in `show` and `close`, in the caller's thread."""

    def __init__(
        self, config: ConsoleConfig, *, info: RunInfo, console: Console | None = None
    ) -> None:
        self._console = console or make_console()
        self._draws = self._console.is_interactive
        self._interval_s = DRAW_INTERVAL_S if self._draws else config.line_interval_s
        self._view = RunView(info)
        self._live: LiveArea | None = None
        self._due_s: float | None = None  # run time of the next redraw or status line
        self._drawn_phase = ""
        self._shows = not info.quiet
        panel_line.clear()  # may contain a message of the previous job

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        if not self._shows:
            return
        self._view.take_progress(progress)
        if not self._is_due():
            return
        if not self._draws:
            self._print_line()
            return
        if self._live is None:
            self._live = LiveArea(self._console)
        self._live.draw(self._panel())

    def close(self) -> None:
        """Draws the final state and restores the terminal."""
        if not self._shows:
            return
        self._shows = False
        self._view.phase = ENDED
        if self._live is not None:
            self._live.draw(self._panel())
            self._live.close()
        elif self._due_s is not None:
            self._print_line()

    def _is_due(self) -> bool:
        """Returns whether a redraw or a status line is due, and if so schedules the next one."""
        now_s, phase = self._view.step.time_s, self._view.phase
        if self._due_s is None:
            self._due_s = now_s + min(FIRST_LINE_S, self._interval_s)
        if now_s < self._due_s and not (self._draws and phase != self._drawn_phase):
            return False
        self._due_s = now_s + self._interval_s
        self._drawn_phase = phase
        return True

    def _panel(self) -> RenderableType:
        return panel(self._view, _memory(), notice=panel_line.text)

    def _print_line(self) -> None:
        say(self._console, line(self._view, _memory()))


def _memory() -> str:
    return f"{size(resident_bytes())} of {size(machine_bytes())}"
