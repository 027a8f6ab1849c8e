"""The line below a live panel, which signal handlers write."""

from __future__ import annotations

import math
import time


class PanelLine:
    """The line below the live panel: signal handlers write there, and the panel redraws it.

    Each method only sets attributes, hence is safe in a signal handler.
    """

    def __init__(self) -> None:
        self.live = False  # a panel is on the terminal, with the cursor at the end of this line
        self.drawing = False  # the panel is being redrawn: the cursor may be anywhere
        self.clear()

    def clear(self) -> None:
        """Removes the message."""
        self._text = ""
        self._until_s = math.inf

    def show(self, text: str, seconds: float | None = None) -> None:
        """Sets the message, permanently or for that many seconds."""
        self._until_s = math.inf if seconds is None else time.monotonic() + seconds
        self._text = text

    @property
    def text(self) -> str:
        """The message, or nothing."""
        return self._text if time.monotonic() < self._until_s else ""


panel_line = PanelLine()  # of this process, which has one terminal
