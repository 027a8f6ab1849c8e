"""Shows the progress of a run: a live panel on a terminal or in a notebook, lines elsewhere.

In a Jupyter notebook the panel is one output of the cell, which IPython updates in place; IPython
is imported by that panel alone.
"""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from border_cli.core.machine import machine_bytes, resident_bytes
from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.stop import panel_line
from border_cli.core.types import Metrics
from border_cli.recorder import figures
from border_cli.recorder.config import ConsoleConfig
from border_cli.recorder.panel import ENDED, HINT, MIN_HEIGHT, MIN_WIDTH, RunView, line, panel
from border_cli.recorder.terminal import make_console, make_recording_console, say

DRAW_INTERVAL_S = 0.5  # of run time; one drawing costs the learner some milliseconds
FIRST_LINE_S = 2.0  # soon enough to see that it runs, late enough for some numbers
NOTEBOOK_WIDTH = 80  # characters of the panel in a notebook
NOTEBOOK_HTML = (
    "<pre style=\"line-height: normal; overflow-x: auto; font-family: Menlo, 'DejaVu Sans Mono', "
    'Consolas, monospace">{code}</pre>'
)


class NotebookPanel:
    """One output of a notebook cell that is updated in place; stands in for rich's `Live`.

    rich's own support for notebooks needs ipywidgets, whose outputs are not saved with a notebook.
    """

    def __init__(self) -> None:
        self._output: Any = None  # IPython's handle of the output
        self._content: dict[str, str] = {}

    def update(self, renderable: RenderableType, *, refresh: bool = False) -> None:
        """Replaces the content; shows it if `refresh`."""
        console = make_recording_console(NOTEBOOK_WIDTH)
        console.print(renderable)
        html = console.export_html(inline_styles=True, code_format=NOTEBOOK_HTML, clear=False)
        self._content = {"text/html": html, "text/plain": console.export_text()}
        if refresh:
            self._show()

    def stop(self) -> None:
        """Shows the last content, which stays in the notebook."""
        self._show()

    def _show(self) -> None:
        if self._output is None:
            from IPython.display import display

            self._output = display(self._content, raw=True, display_id=True)
        else:
            self._output.update(self._content, raw=True)


class ConsoleRecorder(Recorder):
    """Draws within `show` and `close` only, in the caller's thread: it has none of its own."""

    def __init__(
        self, config: ConsoleConfig, *, info: RunInfo, console: Console | None = None
    ) -> None:
        self._line_interval_s = config.line_interval_s
        self._console = console or make_console()
        self._view = RunView(info)
        self._live: Live | NotebookPanel | None = None
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
        if self._has_room():
            self._draw_if_due()
        else:
            self._stop_panel()
            self._say_if_due()

    def close(self) -> None:
        """Leaves the last state on the screen and the terminal as it was."""
        if not self._shows:
            return
        self._shows = False
        self._view.phase = ENDED
        if self._live is not None:
            self._stop_panel()
        elif self._line_due_s is not None and self._line_step != self._view.step:
            self._say_line()

    def _has_room(self) -> bool:
        console = self._console
        return console.is_jupyter or (
            console.is_interactive and console.width >= MIN_WIDTH and console.height >= MIN_HEIGHT
        )

    def _draw_if_due(self) -> None:
        now_s, phase = self._view.step.time_s, self._view.phase
        if now_s < self._drawn_s + DRAW_INTERVAL_S and phase == self._drawn_phase:
            return
        self._drawn_s, self._drawn_phase = now_s, phase
        if self._live is None:
            self._live = self._start_panel()
        panel_line.drawing = True
        panel_line.live = isinstance(self._live, Live)
        self._live.update(self._panel(), refresh=True)
        panel_line.drawing = False

    def _start_panel(self) -> Live | NotebookPanel:
        if self._console.is_jupyter:
            return NotebookPanel()
        live = Live(console=self._console, auto_refresh=False)
        live.start()
        return live

    def _stop_panel(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        panel_line.live = False
        live.update(self._panel())
        live.stop()  # draws once more, shows the cursor again and gives back stdout and stderr

    def _panel(self) -> RenderableType:
        blocks = "" if self._console.options.ascii_only else figures.BLOCKS
        hint = "" if self._console.is_jupyter else HINT
        return panel(self._view, _memory(), blocks, hint=hint, notice=panel_line.text)

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
