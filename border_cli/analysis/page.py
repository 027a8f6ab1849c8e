"""A report as one HTML page that needs no network and no script: the curves as SVG, and the tables.
`page.html` holds its style."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from border_cli.analysis.curves import Report
from border_cli.analysis.drawing import drawn
from border_cli.analysis.tables import METHODS, final_table, improvement_table

TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Report, size: tuple[float, float] | None = None) -> str:
    """The HTML page of a report; `size` is that of the curves. Needs matplotlib."""
    by = ", ".join(report.by)
    picture = drawn(report, "svg", size).decode()
    warnings = (f'<p class="warning">{escape(each)}.</p>' for each in report.warnings)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(f"{report.y_name} by {by}" if by else report.y_name),
        warnings="\n".join(warnings),
        curves=picture[picture.index("<svg") :],  # without the XML declaration of a file
        note=escape(f"Lines and bands: {METHODS[report.stat]}."),
        tables=_tables(report),
    )


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
