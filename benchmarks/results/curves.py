"""The learning curves of a row as an SVG, the same bytes for the same cells.

Needs matplotlib: `pip install "border-cli[bench]"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.results.cells import Content
from benchmarks.results.judging import interval

POINTS = 200
MARGIN = 0.05  # of the height
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "border_cli",
    "svg.fonttype": "none",
    "font.size": 9,
    "path.simplify": False,
}

Curves = Mapping[str, Mapping[int, Content]]  # label -> cells by seed


def draw(path: Path, title: str, curves: Curves, axis: str) -> None:
    """The mean over seeds with its 95 % interval, and thinly every seed; `axis` is what counts."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, (label, cells) in enumerate(curves.items()):
            if cells:
                _draw_one(axes, f"C{number}", f"{label}, {len(cells)} seeds", cells, axis)
        every = [value for cells in curves.values() for value in _returns(cells)]
        low, high = min(every), max(every)
        room = MARGIN * ((high - low) or 1.0)
        axes.set_ylim(low - room, high + room)  # what an interval of few seeds must not stretch
        axes.set_title(title)
        axes.set_xlabel({"env_steps": "env steps", "opt_steps": "updates"}[axis])
        axes.set_ylabel("mean return of an evaluation")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _returns(cells: Mapping[int, Content]) -> list[float]:
    return [each for cell in cells.values() for each in cell["curve"]["returns"]]


def _draw_one(axes: Axes, color: str, label: str, cells: Mapping[int, Content], axis: str) -> None:
    steps, returns = on_one_grid(cells, axis)
    mean = returns.mean(axis=0)  # [T]
    half = np.array([interval(column.tolist()) for column in returns.T])  # [T]
    for cell in cells.values():
        axes.plot(cell["curve"][axis], cell["curve"]["returns"], color, lw=0.5, alpha=0.4)
    axes.fill_between(steps, mean - half, mean + half, color=color, alpha=0.2, lw=0)
    axes.plot(steps, mean, color, lw=1.6, label=label)


def on_one_grid(
    cells: Mapping[int, Content], axis: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps, and every seed's return there; a run that has ended stays at its last.  [T], [S, T]"""
    curves = [cell["curve"] for _, cell in sorted(cells.items())]
    first = max(curve[axis][0] for curve in curves)
    last = max(curve[axis][-1] for curve in curves)
    steps = np.linspace(first, max(first, last), POINTS)  # [T]
    return steps, np.array([np.interp(steps, curve[axis], curve["returns"]) for curve in curves])
