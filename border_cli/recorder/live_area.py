"""The rows at the bottom of a terminal that are drawn again and again, `panel_line` among them."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment

from border_cli.recorder.panel_line import panel_line


class LiveArea:
    """Draws in `draw` and `close` only, in the caller's thread."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        self._console = console
        self._width = console.width
        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._live.start()
        panel_line.live = True

    def draw(self, content: RenderableType) -> None:
        """Puts this in the place of what is there."""
        panel_line.drawing = True
        before, self._width = self._width, self._console.width
        if self._width < before:
            self._erase_wrapped(before)
        self._live.update(content, refresh=True)
        panel_line.drawing = False

    def close(self) -> None:
        """Gives the terminal back."""
        panel_line.live = False
        self._live.stop()

    def _erase_wrapped(self, width: int) -> None:
        """Terminals that become narrower wrap what was drawn in this width: erases as many rows as
        there are more of them."""
        options = self._console.options.update(width=width)
        lines = self._console.render_lines(self._live.renderable, options, pad=False)
        lengths = [Segment.get_line_length(each) for each in lines]
        more = sum(max(0, length - 1) // self._width for length in lengths)
        row = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        self._console.control(Control(ControlType.CARRIAGE_RETURN, *row * more))
