"""Plans the cells to run, and runs several at once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from benchmarks.results.cells import Content, changes, read
from benchmarks.results.children import Children, Failed, Stopped
from benchmarks.results.kinds import Cell
from benchmarks.results.making import Workshop
from benchmarks.results.rows import ROWS
from benchmarks.table import say


class Maker(Protocol):
    """An object that runs cells, called from any number of threads."""

    @property
    def jobs(self) -> int:
        """The number of cells that run at once."""
        ...

    @property
    def children(self) -> Children:
        """The processes to end when the work is stopped."""
        ...

    def make(self, cell: Cell) -> Content:
        """Runs a cell and stores its result; raises Failed or Stopped."""
        ...


def plan_cells(cells: Iterable[Cell], workshop: Workshop, *, keep_stale: bool) -> list[Cell]:
    """Returns the cells to run; every cell follows the one whose product it needs."""

    def lacking(cell: Cell) -> bool:
        return read(cell) is None or (not keep_stale and bool(changes(cell)))

    plan: dict[Cell, None] = {}

    def add(cell: Cell) -> None:
        source = source_of(cell)
        if source and (lacking(source) or not workshop.has(source.row)):
            add(source)
        plan[cell] = None

    for cell in cells:
        if lacking(cell):
            add(cell)
    return list(plan)


def source_of(cell: Cell) -> Cell | None:
    """Returns the cell whose run or data set `cell` needs, if any."""
    return Cell(ROWS[cell.row.needs], 0) if cell.row.needs else None


def make_all(plan: list[Cell], workshop: Maker) -> list[Cell]:
    """Runs the cells, `workshop.jobs` at once, and returns those that failed.

    Ctrl-C ends the running processes; their cells are lost.
    """
    waiting = list(plan)
    failed: list[Cell] = []
    running: dict[Future[None], Cell] = {}
    with ThreadPoolExecutor(workshop.jobs) as pool:
        try:
            while waiting or running:
                failed += _drop_orphans(waiting, failed)
                for cell in _ready(waiting, list(running.values()))[: workshop.jobs - len(running)]:
                    waiting.remove(cell)
                    running[pool.submit(_run_cell, cell, workshop)] = cell
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    failed += [cell] if _complaint(cell, future.exception()) else []
        except BaseException:
            workshop.children.stop()
            raise
    return failed


def _run_cell(cell: Cell, workshop: Maker) -> None:
    say(f"{cell}: started")
    content = workshop.make(cell)
    judged = content.get("best") or content["recorded"]
    say(f"{cell}: mean {judged['mean']:.1f}, {content['wall_s']:.0f} s")


def _ready(waiting: list[Cell], running: list[Cell]) -> list[Cell]:
    """Returns the waiting cells whose source is neither running nor waiting."""
    unfinished = [*waiting, *running]
    return [cell for cell in waiting if source_of(cell) not in unfinished]


def _drop_orphans(waiting: list[Cell], failed: list[Cell]) -> list[Cell]:
    """Removes the cells whose source failed from `waiting`, and returns them."""
    orphans: list[Cell] = []
    while new_orphans := [cell for cell in waiting if source_of(cell) in [*failed, *orphans]]:
        for cell in new_orphans:
            waiting.remove(cell)
            say(f"{cell}: skipped, because {source_of(cell)} failed")
        orphans += new_orphans
    return orphans


def _complaint(cell: Cell, error: BaseException | None) -> bool:
    """Reports a failed command; returns whether there was one. Raises all other errors."""
    if error is None:
        return False
    if not isinstance(error, Failed):
        raise error if not isinstance(error, Stopped) else KeyboardInterrupt
    say(f"{cell}: failed, {error}")
    return True
