"""A report as one HTML page that needs no network: curves with values under the pointer, a legend
that hides and shows groups, and the tables. `page.html` holds its style and its script."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.analysis.curves import STATS, X_NAMES, GroupCurve, Report
from border_cli.analysis.drawing import MARKERS, look
from border_cli.analysis.statistics import Estimate
from border_cli.analysis.tables import METHODS, final_table, improvement_table

TEMPLATE = Path(__file__).with_name("page.html")
GLYPHS = dict(zip(MARKERS, "●■▲◆▼✚✖◀★▶", strict=True))
DIGITS = 6
PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(report: Report) -> str:
    """The whole page."""
    by = ", ".join(report.by)
    contents = {
        "title": escape(f"{report.y_name} by {by}" if by else report.y_name),
        "warnings": "\n".join(
            f'<p class="warning">{escape(each)}.</p>' for each in report.warnings
        ),
        "note": escape(f"Lines and bands: {METHODS[report.stat]}."),
        "tables": _tables(report),
        # No text of a run can end the script that holds it.
        "data": json.dumps(_data(report), allow_nan=False).replace("<", "\\u003c"),
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    return PLACE.sub(lambda place: contents[place[1]], template)


def _tables(report: Report) -> str:
    parts = [
        f"<h2>Final {escape(report.y_name)}</h2>",
        _table(*final_table(report), names=1 + (len(report.panels) > 1)),
    ]
    if report.improvements:
        parts += [
            "<h2>Probability of improvement</h2>",
            '<p class="note">How likely a run of the group ends above one of the other; a tie '
            "counts half.</p>",
            _table(*improvement_table(report), names=2),
        ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, names: int) -> str:
    """The first `names` columns are names, which may break; the others are figures."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[:names])
        + "".join(f'<td class="figure">{escape(cell)}</td>' for cell in row[names:])
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>\n{body}</table></div>'


def _data(report: Report) -> dict[str, Any]:
    """What the script draws."""
    numbers = {group: number for number, group in enumerate(report.groups)}
    panels: list[dict[str, Any]] = [
        {
            "title": each.env,
            "x": X_NAMES[report.x_name],
            "y": f"{report.y_name}, {STATS[report.stat]}",
            "curves": [_curve(curve, numbers[curve.group]) for curve in each.curves],
        }
        for each in report.panels
    ]
    if report.profiles:
        panels.append(
            {
                "title": "performance profile, all environments",
                "x": "normalised score",
                "y": "share of runs above it",
                "curves": [
                    _points(each.thresholds, each.shares, numbers[each.group])
                    | {"range": [0.0, 1.0], "seeds": _runs(report, each.group)}
                    for each in report.profiles
                ],
            }
        )
    return {"groups": [_look(group, number) for group, number in numbers.items()], "panels": panels}


def _runs(report: Report, group: str) -> int:
    curves = (curve for each in report.panels for curve in each.curves)
    return sum(len(curve.runs) for curve in curves if curve.group == group)


def _curve(curve: GroupCurve, number: int) -> dict[str, Any]:
    every = np.concatenate([run.y for run in curve.runs])
    found = _points(curve.x, curve.y, number)
    return found | {
        "range": _rounded(np.array([every.min(), every.max()])),
        "seeds": len(curve.runs),
    }


def _points(x: NDArray[np.float64], y: Estimate, number: int) -> dict[str, Any]:
    low, high = _rounded(y.low), _rounded(y.high)
    known = None not in low
    return {
        "group": number,
        "x": _rounded(x),
        "mid": _rounded(y.mid),
        "low": low if known else None,
        "high": high if known else None,
    }


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """As many digits as a picture shows; None for NaN."""
    return [
        float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()
    ]


def _look(group: str, number: int) -> dict[str, Any]:
    style = look(number)
    dashes = " ".join(f"{2 * each:g}" for each in style["dashes"])
    glyph = GLYPHS[style["marker"]]
    return {"name": group, "color": style["color"], "dashes": dashes or "none", "marker": glyph}
