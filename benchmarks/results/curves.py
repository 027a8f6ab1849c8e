"""The learning curves of a row as an SVG, in the style of `border-plot`.

Needs matplotlib: `pip install "border-cli[plot]"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.results.cells import Content
from border_cli.analysis.curves import RunCurve, report
from border_cli.analysis.drawing import render
from border_cli.words import pluralize

Curves = Mapping[str, Mapping[int, Content]]  # label -> cells by seed


def draw(path: Path, title: str, curves: Curves, axis: str) -> None:
    """Draws the mean over seeds with its 95 % interval, and every seed as a thin line, by `axis`.

    The curve of a run that ended early is extended with its last value.
    """
    runs = [run for label, cells in curves.items() for run in _runs(title, label, cells, axis)]
    comparison = report(runs, by=(), x=axis, y="eval/return", stat="mean", hold=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render(comparison, "svg"))


def _runs(title: str, label: str, cells: Mapping[int, Content], axis: str) -> Iterator[RunCurve]:
    for seed, cell in sorted(cells.items()):
        yield RunCurve(
            name=f"{label} {seed}",
            env=title,
            group=f"{label}, {pluralize(len(cells), 'seed')}",
            x=np.array(cell["curve"][axis], dtype=np.float64),
            y=np.array(cell["curve"]["returns"], dtype=np.float64),
        )
