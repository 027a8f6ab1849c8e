"""Pictures of a report as PNG or SVG, the same bytes for the same report. Needs matplotlib.

Groups differ by colour (Okabe and Ito 2008, which colour-blind readers can tell apart), and by line
style and marker, which remain when a picture is printed in grey.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from border_cli.analysis.curves import STATS, X_NAMES, Panel, Profile, Report
from border_cli.analysis.statistics import Estimate

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (1.2, 1.4), (7, 1.6, 1.2, 1.6))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">")
MARKS = 7  # markers on one curve
GOLDEN = 0.618034  # shares of the distance between markers that never come close to each other
PANEL_INCHES = (6.0, 3.6)
MOST_COLUMNS = 3
NAME_CHARACTERS = 46  # of a line in the legend
LEGEND_INCHES = 0.17  # height of a line in the legend
CHARACTER_INCHES = 0.075
MARGIN = 0.05  # of the height
DPI = 150
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "border_cli",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify": False,
}


def drawn(report: Report, kind: str) -> bytes:
    """A png or svg with one panel per environment, and one with the performance profiles."""
    made = io.BytesIO()
    with style.context(["default", STYLE]):  # whatever the user's matplotlibrc says
        metadata: dict[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {}
        picture(report).savefig(made, format=kind, metadata=metadata, dpi=DPI)
    return made.getvalue()


def picture(report: Report) -> Figure:
    """The figure; to be made and saved within `STYLE`. Dollar signs are no formulas."""
    count = len(report.panels) + bool(report.profiles)
    columns = 2 if count == 4 else min(count, MOST_COLUMNS)
    rows = math.ceil(count / columns)
    names = [_plain(textwrap.fill(group, NAME_CHARACTERS)) for group in report.groups]
    width = PANEL_INCHES[0] * (1 if columns == 1 else 0.8 * columns)
    longest = max(len(line) for name in names for line in name.split("\n"))
    beside = min(len(names), max(1, int(width / (CHARACTER_INCHES * (longest + 11)))))
    lines = sum(name.count("\n") + 1 for name in names) / beside
    height = PANEL_INCHES[1] * rows + LEGEND_INCHES * (math.ceil(lines) + 2)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    handles: dict[str, Line2D] = {}
    for panel, each in zip(report.panels, axes, strict=False):
        handles |= _draw_panel(each, panel, report)
    if report.profiles:
        _draw_profiles(axes[len(report.panels)], report.profiles, report.groups)
    for empty in axes[count:]:
        empty.set_axis_off()
    figure.legend(
        [handles[group] for group in report.groups],
        names,
        title=_plain(", ".join(report.by)) or None,
        loc="outside lower center",
        ncols=beside,
        frameon=False,
        handlelength=4.0,
    )
    return figure


def _plain(text: str) -> str:
    return text.replace("$", r"\$")


def _draw_panel(axes: Axes, panel: Panel, report: Report) -> dict[str, Line2D]:
    handles = {}
    for curve in panel.curves:
        number = report.groups.index(curve.group)
        few = len(panel.curves) <= 3  # single seeds would bury more curves than that
        for run in curve.runs if few and len(curve.runs) > 1 else ():
            axes.plot(run.x, run.y, COLORS[number % len(COLORS)], lw=0.4, alpha=0.35)
        handles[curve.group] = _draw_band(axes, curve.x, curve.y, number)
    every = np.concatenate([run.y for curve in panel.curves for run in curve.runs])
    room = MARGIN * ((every.max() - every.min()) or abs(every.max()) or 1.0)
    axes.set(
        title=_plain(panel.env),
        xlabel=X_NAMES[report.x_name],
        ylabel=_plain(f"{report.y_name}, {STATS[report.stat]}"),
        ylim=(every.min() - room, every.max() + room),  # intervals of few seeds must not stretch
    )
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    return handles


def _draw_band(axes: Axes, x: Any, y: Estimate, number: int) -> Line2D:
    """The line and the interval of a group; the first 28 groups differ in print, too."""
    color = COLORS[number % len(COLORS)]
    axes.fill_between(x, y.low, y.high, color=color, alpha=0.15, lw=0)
    step = max(1, len(x) // MARKS)
    [line] = axes.plot(
        x,
        y.mid,
        color=color,
        dashes=DASHES[number % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)],
        lw=1.5,
        markersize=5.5,
        markeredgewidth=0.0,
        markevery=(round(step * (number * GOLDEN % 1)) % step, step),  # equal curves alternate
    )
    return line


def _draw_profiles(axes: Axes, profiles: Sequence[Profile], groups: Sequence[str]) -> None:
    for each in profiles:
        _draw_band(axes, each.thresholds, each.shares, groups.index(each.group))
    axes.set(
        title="performance profile, all environments",
        xlabel="normalised score",
        ylabel="share of runs above it",
        ylim=(-0.03, 1.03),
    )
    axes.grid(alpha=0.3)
