"""Tables of the pages that benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; the cells are Markdown already, and short rows are filled up."""
    lines = [head, ["---"] * len(head), *rows]
    padded = ([*line, *[""] * (len(head) - len(line))] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)
