"""The line below the live panel, set by signal handlers."""

from __future__ import annotations

import math
import time


class PanelLine:
    """The line below the live panel: signal handlers set it, and the panel redraws it.

    All methods only set attributes and are therefore safe in a signal handler.
    """

    def __init__(self) -> None:
        self.live = False  # whether a panel is shown, with the cursor at the end of this line
        self.drawing = False  # whether the panel is being redrawn: the cursor may be anywhere
        self.clear()

    def clear(self) -> None:
        """Removes the message."""
        self._text = ""
        self._until_s = math.inf

    def show(self, text: str, seconds: float | None = None) -> None:
        """Sets the message, permanently or for `seconds`."""
        self._until_s = math.inf if seconds is None else time.monotonic() + seconds
        self._text = text

    @property
    def text(self) -> str:
        """The message; empty if there is none or it has expired."""
        return self._text if time.monotonic() < self._until_s else ""


panel_line = PanelLine()  # a process has one terminal and therefore one line
