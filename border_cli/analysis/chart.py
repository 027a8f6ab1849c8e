"""Plots of the curves of an environment as text, drawn by plotext."""

from __future__ import annotations

import string

import plotext

from border_cli.analysis.curves import X_NAMES, Panel

COLORS = ("blue", "red", "green", "magenta", "cyan", "yellow")
LINE = "braille"  # plotext's marker with the highest resolution
MOST_WIDTH, HEIGHT = 120, 19  # characters, including axes and labels


def color(group: int) -> str:
    return COLORS[group % len(COLORS)]


def mark(group: int, groups: int, *, colored: bool) -> str:
    """Returns the marker of a curve: a line, or a letter without colours or with too few."""
    letters = string.ascii_uppercase
    return LINE if colored and groups <= len(COLORS) else letters[group % len(letters)]


def chart(panel: Panel, groups: tuple[str, ...], x_name: str, *, width: int, colored: bool) -> str:
    """Returns the plot with its axes, coloured with escape codes."""
    plotext.clear_figure()
    plotext.theme("clear")
    for curve in panel.curves:
        group = groups.index(curve.group)
        marker = mark(group, len(groups), colored=colored)
        plotext.plot(curve.x.tolist(), curve.y.mid.tolist(), marker=marker, color=color(group))
    plotext.xlabel(X_NAMES[x_name])
    plotext.plot_size(min(width, MOST_WIDTH), HEIGHT)
    return str(plotext.build())
