"""The lines at the bottom of a terminal that are redrawn in place, including `panel_line`."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment

from border_cli.recorder.panel_line import panel_line


class LiveArea:
    """An area that is redrawn in place. Only `draw` and `close` draw, in the caller's thread."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        self._console = console
        self._width = console.width
        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._live.start()
        panel_line.live = True

    def draw(self, content: RenderableType) -> None:
        """Replaces the current content."""
        panel_line.drawing = True
        before, self._width = self._width, self._console.width
        if self._width < before:
            self._erase_wrapped(before)
        self._live.update(content, refresh=True)
        panel_line.drawing = False

    def close(self) -> None:
        """Restores the terminal; a transient area is erased."""
        panel_line.live = False
        self._live.stop()

    def _erase_wrapped(self, width: int) -> None:
        """Erases the extra rows that appear when a terminal becomes narrower and wraps the content,
        which was drawn for `width`."""
        options = self._console.options.update(width=width)
        lines = self._console.render_lines(self._live.renderable, options, pad=False)
        lengths = [Segment.get_line_length(line) for line in lines]
        num_extra = sum(max(0, length - 1) // self._width for length in lengths)
        erase_row = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        self._console.control(Control(ControlType.CARRIAGE_RETURN, *erase_row * num_extra))
