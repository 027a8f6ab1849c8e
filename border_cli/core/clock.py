"""Time, handed in so that tests can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """The machine's clock; never steps back."""

    def now_s(self) -> float:
        return time.monotonic()
