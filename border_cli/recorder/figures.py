"""Formats numbers for display. Unknown values are shown as `-`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

UNKNOWN = "-"

Figure: TypeAlias = Callable[[float | None], str]


def _format(value: float | None, template: str) -> str:
    return template.format(value) if value is not None and math.isfinite(value) else UNKNOWN


def count(value: float | None) -> str:
    """12300 -> `12,300`, and 12345678 -> `12.35 M`."""
    if value is None or abs(value) < 1e7:
        return _format(value, "{:,.0f}")
    return _format(value / 1e6, "{:,.4g} M")


def rate(value: float | None) -> str:
    """1210.4 -> `1,210`, and 0.42 -> `0.42`, so that slow environments are not shown as 0."""
    return _format(value, "{:.3g}") if value is not None and abs(value) < 10 else count(value)


def score(value: float | None) -> str:
    """412.345 -> `412.3`."""
    return _format(value, "{:,.1f}")


def ratio(value: float | None) -> str:
    """0.9987 -> `1.00`."""
    return _format(value, "{:,.2f}")


def percent(value: float | None) -> str:
    """0.62 -> `62 %`."""
    return _format(None if value is None else 100 * value, "{:.0f} %")


def duration(seconds: float | None) -> str:
    """12.3 -> `0:12`, 3723 -> `1:02:03`, 180000 -> `2 d 2:00:00`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    if hours == 0:
        return f"{minute}:{second:02d}"
    days, hour = divmod(hours, 24)
    clock = f"{hour}:{minute:02d}:{second:02d}"
    return f"{days} d {clock}" if days else clock


def age(seconds: float | None) -> str:
    """75 -> `1 min`, 180000 -> `2 d`."""
    if seconds is None:
        return UNKNOWN
    for limit, unit_s, unit in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // unit_s)} {unit}"
    return f"{int(seconds // 86_400):,} d"
