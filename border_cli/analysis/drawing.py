"""Figures of a report as PNG, SVG or PDF; deterministic to the byte. Requires matplotlib.

Groups differ by colour (the colour-blind safe palette of Okabe and Ito 2008) and also by line style
and marker, which remain visible in a greyscale print.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from border_cli.analysis.curves import STATS, X_NAMES, Panel, Report
from border_cli.analysis.statistics import Estimate
from border_cli.errors import ConfigError

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (1.2, 1.4), (7, 1.6, 1.2, 1.6))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">")
MARKS = 7  # minimum number of markers on a curve with as many points
GOLDEN = 0.618034  # golden ratio: marker offsets n * GOLDEN mod 1 are well separated
PANEL_INCHES = (4.8, 3.6)
ALONE_INCHES = 6.0  # width of a single panel
LEAST_INCHES = (2.0, 1.5)  # minimum size of a panel with its labels, if --size is given
MOST_COLUMNS = 3
NAME_CHARACTERS = 46  # maximum line length in the legend
CHARACTERS_PER_INCH = 15
LINE_CHARACTERS = 9  # width of a legend handle in characters
DPI = 150
UNDATED = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
STYLE: dict[Any, Any] = {
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.dpi": DPI,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.borderpad": 0.8,
    "legend.columnspacing": 1.6,  # twice the pad, so that n columns are n times as wide as one
    "legend.fontsize": "small",
    "legend.frameon": False,
    "legend.handlelength": 4.0,
    "legend.labelspacing": 0.4,
    "path.simplify": False,
    "pdf.fonttype": 42,  # text stays searchable and editable
    "svg.fonttype": "none",
    "svg.hashsalt": "border_cli",
}

Inches = tuple[float, float]  # width and height


def render(report: Report, kind: str, size: Inches | None = None) -> bytes:
    """Draws a png, svg or pdf with a panel per environment and one for performance profiles.

    Raises `ConfigError` if `size` leaves no room for the curves.
    """
    content = io.BytesIO()
    with style.context(["default", STYLE]):  # overrides the user's matplotlibrc
        undated: dict[str, Any] = dict.fromkeys(UNDATED.get(kind, ()))
        picture(report, size).savefig(content, format=kind, metadata=undated)
    return content.getvalue()


def picture(report: Report, size: Inches | None = None) -> Figure:
    """Draws the figure. Must be called, and the result saved, within the style context `STYLE`."""
    count = len(report.panels) + bool(report.profiles)
    columns = 2 if count == 4 else min(count, MOST_COLUMNS)
    if size is not None:
        columns = max(1, min(columns, int(size[0] / LEAST_INCHES[0])))
    rows = math.ceil(count / columns)
    default = max(ALONE_INCHES, PANEL_INCHES[0] * columns), PANEL_INCHES[1] * rows
    figure = Figure(figsize=size or default, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    handles: dict[str, Line2D] = {}
    for panel, panel_axes in zip(report.panels, axes, strict=False):
        handles |= _draw_panel(panel_axes, panel, report)
    if report.profiles:
        subplot = axes[len(report.panels)]
        for profile in report.profiles:
            _draw_band(
                subplot, profile.thresholds, profile.shares, report.groups.index(profile.group)
            )
        subplot.set(
            title="performance profile, all environments",
            xlabel="normalised score",
            ylabel="fraction of runs with a higher score",
            ylim=(-0.03, 1.03),
        )
    for empty in axes[count:]:
        empty.set_axis_off()
    legend = _draw_legend(figure, [handles[group] for group in report.groups], report)
    legend_inches = legend.get_window_extent().height / figure.dpi
    least = LEAST_INCHES[0], LEAST_INCHES[1] * rows + legend_inches
    if size is None:
        figure.set_figheight(default[1] + legend_inches)
    elif size[0] < least[0] or size[1] < least[1]:
        raise ConfigError(
            f"--size has no room for the curves beside their names: the minimum is {least[0]:g} by "
            f"{math.ceil(least[1] * 10) / 10:g} inches"
        )
    return figure


def _draw_legend(figure: Figure, handles: Sequence[Line2D], report: Report) -> Legend:
    """Draws the legend below the panels, in as many columns as fit."""
    characters = min(
        NAME_CHARACTERS, int(figure.get_figwidth() * CHARACTERS_PER_INCH) - LINE_CHARACTERS
    )
    names = [_plain(textwrap.fill(group, characters)) for group in report.groups]
    draw = partial(figure.legend, handles, names, loc="outside lower center")
    one_column = draw()
    columns = int(figure.bbox.width / one_column.get_window_extent().width)
    one_column.remove()
    title = _plain(textwrap.fill(", ".join(report.by), characters))
    return draw(ncols=max(1, columns), title=title)


def _plain(text: str) -> str:
    """Escapes dollar signs, which matplotlib would read as formulas."""
    return text.replace("$", r"\$")


def _draw_panel(axes: Axes, panel: Panel, report: Report) -> dict[str, Line2D]:
    """Draws a panel, with single seeds for up to three groups; returns the lines of the groups. The
    limits of the axes follow the seeds, not the intervals, which are wide for few seeds."""
    numbers = {curve.group: report.groups.index(curve.group) for curve in panel.curves}
    for curve in panel.curves:
        color = COLORS[numbers[curve.group] % len(COLORS)]
        for run in curve.runs:
            axes.plot(run.x, run.y, color, lw=0.4, alpha=0.35, visible=len(panel.curves) <= 3)
    axes.autoscale_view()
    axes.autoscale(enable=False)
    axes.set(
        title=_plain(panel.env),
        xlabel=X_NAMES[report.x_name],
        ylabel=_plain(f"{report.y_name}, {STATS[report.stat]}"),
    )
    if report.x_name != "time_s":
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return {
        curve.group: _draw_band(axes, curve.x, curve.y, numbers[curve.group])
        for curve in panel.curves
    }


def _draw_band(axes: Axes, x: Any, y: Estimate, number: int) -> Line2D:
    """Draws the line and the interval of a group; the first 20 groups differ even in greyscale."""
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
        markevery=(round(step * (number * GOLDEN % 1)) % step, step),  # shifted in each group
    )
    return line
