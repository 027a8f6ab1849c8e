"""Trains every agent over several seeds, and checks and reports the scores.

    python -m benchmarks.results                    runs the cells that are missing or stale
    python -m benchmarks.results dqn_cartpole       one row; '*_pendulum*' for several rows
    python -m benchmarks.results --list             shows the rows, with stale cells and the reasons
    python -m benchmarks.results --report           writes docs/inside/results.md and its curves

A cell is one seed of one row: `border-train` from the command line, then `border-eval` with 100
fresh episodes on the best and the last model; or a data set recorded by `border-record`; or
Stable-Baselines3 (`pip install -e ".[bench]"`). Finished cells are stored in
benchmarks/results/cells and run again only if one of their settings, such as a value in a tuned
file, or one of their versions in versions.json has changed. Ctrl-C loses only the unfinished cells.
Data sets that are needed but missing in the --keep directory are recorded again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.results.cells import changes, read
from benchmarks.results.children import Children
from benchmarks.results.kinds import Cell, Row
from benchmarks.results.making import Workshop
from benchmarks.results.rows import ROWS
from benchmarks.results.settings import settings_of
from benchmarks.results.work import make_all, plan_cells
from benchmarks.table import say
from border_cli.errors import BorderError
from border_cli.words import did_you_mean, pluralize

SHOWN_CHANGES = 3


def main() -> None:
    arguments = _parser().parse_args()
    rows = match_rows(arguments.rows)
    if arguments.list:
        for row in rows:
            print(_line(row, arguments.seeds))
        return
    if arguments.report:
        from benchmarks.results.report import write_report

        write_report()
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(_run_cells(rows, arguments))
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names or patterns (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="cells run in parallel (default: 1)")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        help="only these seeds, including ones beyond those of a row",
    )
    parser.add_argument("--list", action="store_true", help="show the rows without running any")
    parser.add_argument(
        "--report", action="store_true", help="write the report without running any"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep runs and data sets in this directory"
    )
    parser.add_argument(
        "--keep-stale", action="store_true", help="run missing cells only, not stale ones"
    )
    return parser


def match_rows(patterns: Sequence[str]) -> list[Row]:
    """Returns the rows that match a pattern; every pattern must match a row."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in ROWS):
            sys.exit(
                f"unknown row {pattern!r}{did_you_mean(pattern, ROWS)} (--list shows all rows)"
            )
    names = [name for name in ROWS if any(fnmatch(name, wanted) for wanted in patterns or ["*"])]
    return [ROWS[name] for name in names]


def cells_of(row: Row, seeds: Sequence[int] | None) -> list[Cell]:
    """Returns the cells of a row, for its own seeds or for the given ones."""
    if row.seeds == 1:  # other rows depend on it
        return [Cell(row, 0)]
    return [Cell(row, seed) for seed in (range(row.seeds) if seeds is None else seeds)]


def _line(row: Row, seeds: Sequence[int] | None) -> str:
    """Describes the finished and stale cells of a row."""
    cells = cells_of(row, seeds)
    done = [cell for cell in cells if read(cell)]
    counted = f"{row.name:32} {len(done)} of {len(cells)}"
    try:
        stale = {cell.seed: reasons for cell in done if (reasons := changes(cell))}
        settings_of(row)
    except BorderError as error:
        return f"{counted}  cannot run: {str(error).splitlines()[0]}"
    return "\n".join([counted, *(f"    {line}" for line in describe_stale(stale))])


def describe_stale(stale: Mapping[int, Sequence[str]]) -> list[str]:
    """Returns one line for all stale seeds that have the same reasons."""
    by_reasons: dict[tuple[str, ...], list[int]] = {}
    for seed, reasons in stale.items():
        by_reasons.setdefault(tuple(reasons), []).append(seed)
    lines = []
    for reasons, seeds in by_reasons.items():
        more = f", and {len(reasons) - SHOWN_CHANGES} more" if len(reasons) > SHOWN_CHANGES else ""
        lines.append(f"stale {seeds}: {'; '.join(reasons[:SHOWN_CHANGES])}{more}")
    return lines


def _run_cells(rows: Sequence[Row], arguments: Any) -> int:
    """Runs the cells of the rows; returns the exit status."""
    cells: list[Cell] = []
    unable = []
    for row in rows:
        try:
            settings_of(row)
        except BorderError as error:
            unable.append(row.name)
            say(f"{row.name}: cannot run: {str(error).splitlines()[0]}")
        else:
            cells += cells_of(row, arguments.seeds)
    with ExitStack() as stack:
        folder = arguments.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="border-results-"))
        )
        (folder / "datasets").mkdir(parents=True, exist_ok=True)
        children = Children(arguments.jobs)
        keep = arguments.keep is not None
        workshop = Workshop(folder.resolve(), keep, arguments.jobs, children)
        plan = plan_cells(cells, workshop, keep_stale=arguments.keep_stale)
        say(f"{pluralize(len(plan), 'cell')} to run, {arguments.jobs} in parallel")
        failed = make_all(plan, workshop)
    if failed:
        say(f"failed: {', '.join(map(str, failed))}")
    return 1 if failed or unable else 0


if __name__ == "__main__":
    main()
