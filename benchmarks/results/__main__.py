"""The learning table: what every agent reaches, over seeds, and whether that is enough.

    python -m benchmarks.results                    makes the cells that are missing or stale
    python -m benchmarks.results dqn_cartpole       of one row; '*_pendulum*' of several
    python -m benchmarks.results --list             what there is, and what is stale and why
    python -m benchmarks.results --report           writes docs/results.md and docs/results/*.svg

A cell is one seed of one row: `border-train` as a user types it, then `border-eval` with 100 fresh
episodes on the best and on the last model; or a data set by `border-record`; or Stable-Baselines3
(`pip install -e ".[bench]"`). Finished cells are kept in benchmarks/results/cells and are not made
again unless a setting of theirs has changed since; a tuned file is enough. Ctrl-C loses only the
cells under way. Data sets are made again where they are needed and --keep has none.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
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
from benchmarks.results.work import make_all, to_make
from benchmarks.table import say
from border_cli.core.errors import BorderError, did_you_mean

SHOWN_CHANGES = 3


def main() -> None:
    arguments = _parser().parse_args()
    rows = chosen(arguments.rows)
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
        sys.exit(_made(rows, arguments))
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("rows", nargs="*", metavar="ROW", help="names or patterns; all without")
    made.add_argument("--jobs", type=int, default=1, help="cells at once")
    made.add_argument("--seeds", type=int, nargs="+", help="these only; also more than a row asks")
    made.add_argument("--list", action="store_true", help="shows the rows and makes nothing")
    made.add_argument("--report", action="store_true", help="writes the report and makes nothing")
    made.add_argument("--keep", type=Path, metavar="DIR", help="runs and data sets stay there")
    made.add_argument("--keep-stale", action="store_true", help="makes missing cells only")
    return made


def chosen(patterns: Sequence[str]) -> list[Row]:
    """The rows that fit one of the patterns; every pattern must fit one."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in ROWS):
            sys.exit(f"{pattern} is no row{did_you_mean(pattern, ROWS)} (--list shows them)")
    names = [name for name in ROWS if any(fnmatch(name, each) for each in patterns or ["*"])]
    return [ROWS[name] for name in names]


def cells_of(row: Row, seeds: Sequence[int] | None) -> list[Cell]:
    """The seeds of a row, or those that were asked for."""
    if row.seeds == 1:  # others learn from it
        return [Cell(row, 0)]
    return [Cell(row, seed) for seed in (range(row.seeds) if seeds is None else seeds)]


def _line(row: Row, seeds: Sequence[int] | None) -> str:
    """What there is of a row, in words."""
    cells = cells_of(row, seeds)
    done = [cell for cell in cells if read(cell)]
    counted = f"{row.name:32} {len(done)} of {len(cells)}"
    try:
        stale = {cell.seed: found for cell in done if (found := changes(cell))}
        settings_of(row)
    except BorderError as error:
        return f"{counted}  cannot run: {str(error).splitlines()[0]}"
    if not stale:
        return counted
    found = next(iter(stale.values()))
    more = f", and {len(found) - SHOWN_CHANGES} more" if len(found) > SHOWN_CHANGES else ""
    return f"{counted}  stale {sorted(stale)}: {'; '.join(found[:SHOWN_CHANGES])}{more}"


def _made(rows: Sequence[Row], arguments: Any) -> int:
    """Makes the cells that are asked for; the exit status."""
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
        kept = arguments.keep is not None
        workshop = Workshop(folder.resolve(), kept, arguments.jobs, children)
        plan = to_make(cells, workshop, keep_stale=arguments.keep_stale)
        say(f"{len(plan)} cells to make, {arguments.jobs} at once")
        failed = make_all(plan, workshop)
    if failed:
        say(f"failed: {', '.join(map(str, failed))}")
    return 1 if failed or unable else 0


if __name__ == "__main__":
    main()
