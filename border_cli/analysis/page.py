"""A report as a self-contained HTML page: the curves as SVG, and the tables. It needs no network
and no scripts; `page.html` is its template."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from border_cli.analysis.curves import Report
from border_cli.analysis.drawing import render
from border_cli.analysis.tables import Section, sections

TEMPLATE = Path(__file__).with_name("page.html")


def page(
    report: Report, size: tuple[float, float] | None = None, *, origin: Sequence[str] = ()
) -> str:
    """Returns the HTML page of a report. `size` is the size of the figure; `origin` says how and
    when the page was created. Requires matplotlib."""
    by = ", ".join(report.by)
    picture = render(report, "svg", size).decode()
    warnings = (f'<p class="warning">{escape(warning)}.</p>' for warning in report.warnings)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(f"{report.y_name} by {by}" if by else report.y_name),
        warnings="\n".join(warnings),
        curves=picture[picture.index("<svg") :],  # without the XML declaration
        tables="\n".join(map(_table, sections(report))),
        origin="<br>\n".join(map(escape, [*origin, *_runs(report)])),
    )


def _runs(report: Report) -> list[str]:
    """Returns a line per run, with its group."""
    curves = [curve for panel in report.panels for curve in panel.curves]
    return [f"{curve.group}: {run.name}" for curve in curves for run in curve.runs]


def _table(section: Section) -> str:
    rows = [section.head, *section.rows]
    lines = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<h2>{escape(section.title)}</h2>\n<p class="note">{escape(section.note)}.</p>\n'
        f'<div class="scroll"><table>{"".join(lines)}</table></div>'
    )
