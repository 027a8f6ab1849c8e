"""A report as `border-plot` shows it: in files and in the terminal.

matplotlib, which an extra installs, is imported by the function that makes a file's content.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from border_cli.analysis import tables
from border_cli.analysis.chart import LINE, chart, color, mark
from border_cli.analysis.curves import Report
from border_cli.errors import RunFailed
from border_cli.recorder.terminal import make_console, make_table
from border_cli.system.files import write_bytes

NAME_CHARACTERS = 20  # of a name in a narrow terminal
BETWEEN = 3  # characters between two columns
MOST_PAIRS = 10  # probabilities of improvement in the terminal


def write(path: Path, report: Report, table: str | None, size: tuple[float, float] | None) -> None:
    """Writes a file of the kind that its suffix names; `table` is that of a .csv file, `size` that
    of a picture in inches."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, _content(path.suffix.lower(), report, table, size))
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error.strerror}") from error


def _content(
    suffix: str, report: Report, table: str | None, size: tuple[float, float] | None
) -> bytes:
    if suffix == ".html":
        from border_cli.analysis.page import page

        return page(report, size).encode()
    if suffix in (".png", ".svg", ".pdf"):
        from border_cli.analysis.drawing import drawn

        return drawn(report, suffix[1:], size)
    text = (
        tables.markdown(report) if suffix == ".md" else tables.csv_text(report, table or "curves")
    )
    return text.encode()


def show(report: Report, files: Sequence[Path]) -> None:
    """The curves where no file has them, the tables, and the files that were written."""
    console = make_console()
    if not files:
        _show_curves(console, report)
    _show_tables(console, report)
    for path in files:
        console.print(f"wrote {path}", soft_wrap=True)


def _show_tables(console: Console, report: Report) -> None:
    head, rows = tables.final_table(report)
    show_table(console, head, rows, names=head.index("seeds"))
    console.print(
        f"final {report.y_name}: {tables.METHODS[report.stat]}\n", style="dim", soft_wrap=True
    )
    if report.improvements:
        head, rows = tables.improvement_table(report)
        show_table(console, head, rows[:MOST_PAIRS], names=2)
        left = len(rows) - MOST_PAIRS
        more = f"; {left} more in .md, .html and .csv files" if left > 0 else ""
        console.print(f"probability of improvement{more}\n", style="dim", soft_wrap=True)


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


def show_table(
    console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], *, names: int
) -> None:
    """The first columns are `names`, which break where the terminal is narrow; figures never do."""
    table = make_table()
    for number, column in enumerate(zip(head, *rows, strict=True)):
        longest = max(map(len, column))
        breaks = number < names and console.is_terminal
        width = min(longest, NAME_CHARACTERS) if breaks else longest
        table.add_column(head[number], overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*row)
    least = sum(column.min_width or 0 for column in table.columns)
    console.width = max(console.width, least + BETWEEN * (len(head) + 1))
    console.print(table)
