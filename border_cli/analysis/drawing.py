"""Pictures of a report as PNG, SVG or PDF, the same bytes for the same report. Needs matplotlib.

Groups differ by colour (Okabe and Ito 2008, which colour-blind readers can tell apart), and by line
style and marker, which remain when a picture is printed in grey.
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
MARKS = 7  # markers on one curve
GOLDEN = 0.618034  # shares of the distance between markers that never come close to each other
PANEL_INCHES = (4.8, 3.6)
ALONE_INCHES = 6.0  # width of a panel beside which there is none
LEAST_INCHES = (2.0, 1.5)  # of a panel with its labels, where a size is asked for
MOST_COLUMNS = 3
NAME_CHARACTERS = 46  # of a line in the legend
CHARACTERS_PER_INCH = 15
LINE_CHARACTERS = 9  # as wide as the line in front of a name
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
    "legend.columnspacing": 1.6,  # twice the pad: so the widths of columns add up
    "legend.fontsize": "small",
    "legend.frameon": False,
    "legend.handlelength": 4.0,
    "legend.labelspacing": 0.4,
    "path.simplify": False,
    "pdf.fonttype": 42,  # text that can be searched and edited
    "svg.fonttype": "none",
    "svg.hashsalt": "border_cli",
}

Inches = tuple[float, float]  # width and height


def drawn(report: Report, kind: str, size: Inches | None = None) -> bytes:
    """A png, svg or pdf with one panel per environment, and one with the performance profiles.

    Raises `ConfigError` where `size` leaves no room for the curves.
    """
    made = io.BytesIO()
    with style.context(["default", STYLE]):  # whatever the user's matplotlibrc says
        undated: dict[str, Any] = dict.fromkeys(UNDATED.get(kind, ()))
        picture(report, size).savefig(made, format=kind, metadata=undated)
    return made.getvalue()


def picture(report: Report, size: Inches | None = None) -> Figure:
    """The figure; to be made and saved within `STYLE`."""
    count = len(report.panels) + bool(report.profiles)
    columns = 2 if count == 4 else min(count, MOST_COLUMNS)
    if size is not None:
        columns = max(1, min(columns, int(size[0] / LEAST_INCHES[0])))
    rows = math.ceil(count / columns)
    default = max(ALONE_INCHES, PANEL_INCHES[0] * columns), PANEL_INCHES[1] * rows
    figure = Figure(figsize=size or default, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    handles: dict[str, Line2D] = {}
    for panel, each in zip(report.panels, axes, strict=False):
        handles |= _draw_panel(each, panel, report)
    if report.profiles:
        profiled = axes[len(report.panels)]
        for each in report.profiles:
            _draw_band(profiled, each.thresholds, each.shares, report.groups.index(each.group))
        profiled.set(
            title="performance profile, all environments",
            xlabel="normalised score",
            ylabel="share of runs above it",
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
            f"--size has no room for the curves beside their names: give at least {least[0]:g} by "
            f"{math.ceil(least[1] * 10) / 10:g} inches"
        )
    return figure


def _draw_legend(figure: Figure, handles: Sequence[Line2D], report: Report) -> Legend:
    """Names below the panels, in as many columns as the figure is wide enough for."""
    characters = min(
        NAME_CHARACTERS, int(figure.get_figwidth() * CHARACTERS_PER_INCH) - LINE_CHARACTERS
    )
    names = [_plain(textwrap.fill(group, characters)) for group in report.groups]
    draw = partial(figure.legend, handles, names, loc="outside lower center")
    one_column = draw()
    beside = int(figure.bbox.width / one_column.get_window_extent().width)
    one_column.remove()
    title = _plain(textwrap.fill(", ".join(report.by), characters))
    return draw(ncols=max(1, beside), title=title)


def _plain(text: str) -> str:
    """Dollar signs are no formulas."""
    return text.replace("$", r"\$")


def _draw_panel(axes: Axes, panel: Panel, report: Report) -> dict[str, Line2D]:
    """The lines of the groups. Seeds set the limits of the axes, and intervals do not, which are
    wide where seeds are few; up to three groups show their seeds."""
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
