"""Output of a `border-plot` report to files and to the terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from border_cli import __version__
from border_cli.analysis import tables
from border_cli.analysis.chart import LINE, chart, color, mark
from border_cli.analysis.curves import Report
from border_cli.errors import RunFailed, os_errors_as
from border_cli.recorder.terminal import make_console, make_table
from border_cli.run.status import now
from border_cli.system.files import write_bytes

UNLIMITED = 10_000  # width of a table in a file or a pipe


def write(path: Path, report: Report, table: str | None, size: tuple[float, float] | None) -> None:
    """Writes a file in the format of its suffix and creates its directory. `table` is the content
    of a .csv file, `size` the picture size in inches. Raises `RunFailed`."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        # imported late: matplotlib is an optional dependency
        from border_cli.analysis.page import page

        origin = [shlex.join(["border-plot", *sys.argv[1:]]), f"border_cli {__version__}, {now()}"]
        content = page(report, size, origin=origin).encode()
    elif suffix == ".md":
        content = tables.markdown(report).encode()
    elif suffix == ".csv":
        content = tables.csv_text(report, table or "curves").encode()
    else:
        # imported late, as above
        from border_cli.analysis.drawing import render

        content = render(report, suffix[1:], size)
    with os_errors_as(RunFailed):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)


def show(report: Report, files: Sequence[Path]) -> None:
    """Prints the tables and the files written. Without files, prints the curves first."""
    console = make_console()
    if not files:
        _show_curves(console, report)
    if not console.is_terminal:
        console.width = UNLIMITED
    for section in tables.sections(report):
        _show_table(console, section)
    for path in files:
        console.print(f"wrote {path}", soft_wrap=True)


def _show_table(console: Console, section: tables.Section) -> None:
    """Prints a table. In a narrow terminal names wrap before figures do."""
    table, rows = make_table(), section.rows[: section.most]
    for title in section.head[: section.names]:
        table.add_column(title, overflow="fold")
    for title in section.head[section.names :]:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    num_hidden = len(section.rows) - len(rows)
    more = f"; {num_hidden} more in .md, .html and .csv files" if num_hidden else ""
    console.print(table)
    console.print(f"{section.title}: {section.note}{more}\n", style="dim", soft_wrap=True)


def _show_curves(console: Console, report: Report) -> None:
    groups, colored = report.groups, console.color_system is not None
    for panel in report.panels:
        console.print(f"{panel.env}: {report.y_name}", style="bold", soft_wrap=True)
        drawn = chart(panel, groups, report.x_name, width=console.width, colored=colored)
        console.print(Text.from_ansi(drawn), soft_wrap=True)
    console.print(", ".join(report.by), style="dim", soft_wrap=True)
    for number, group in enumerate(groups):
        sign = mark(number, len(groups), colored=colored).replace(LINE, "──")
        console.print(f"{sign}  {group}", style=color(number), soft_wrap=True)
    console.print()
