"""The versions of results: which changes of the code made finished cells stale.

`versions.json` has, for an agent or for one row, a line about every change of what it computes. The
version is 1 plus the number of these lines. Whoever makes such a change adds a line;
`python -m benchmarks.golden --against COMMIT` shows which agents need one. A cell stores the
versions it was made with, and is stale if one of them has been raised since. A cell without
versions has version 1. A refactoring adds no line, so it makes no cell stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.results.kinds import Row, Run
from benchmarks.results.rows import ROWS

FILE = Path(__file__).with_name("versions.json")
Reasons = Mapping[str, Sequence[str]]  # name of an agent or a row -> one line per change


def read_versions() -> dict[str, list[str]]:
    """Returns the content of `versions.json`."""
    content: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def agent_of(overrides: Sequence[str]) -> str:
    """Returns the name of the agent in a command line."""
    return next(word.removeprefix("agent=") for word in overrides if word.startswith("agent="))


def names_of(row: Row) -> set[str]:
    """Returns the names whose versions count for a row: its own, its agent's, and those of the rows
    from which its data come."""
    names = {row.name}
    if isinstance(row, Run):
        names.add(agent_of(row.typed))
    return names | (names_of(ROWS[row.needs]) if row.needs else set())


def versions_of(row: Row, reasons: Reasons) -> dict[str, int]:
    """Returns the current versions of a row, as a cell stores them."""
    return {name: 1 + len(reasons.get(name, ())) for name in sorted(names_of(row))}


def changed_versions(then: Mapping[str, int], row: Row, reasons: Reasons) -> list[str]:
    """Describes the changes since a cell with the versions `then` was made."""
    changes = []
    for name, version in versions_of(row, reasons).items():
        made_with = then.get(name, 1)
        if made_with > version:
            changes.append(f"made with version {made_with} of {name}, which is now {version}")
        lines = enumerate(reasons.get(name, ()), start=2)
        changes += [f"version {n} of {name}: {line}" for n, line in lines if n > made_with]
    return changes


def raised_agents(then: Reasons, now: Reasons) -> set[str]:
    """Returns the agents of which the version, or that of one of their rows, has been raised."""
    names = {name for name, lines in now.items() if len(lines) > len(then.get(name, ()))}
    rows = [ROWS[name] for name in names & ROWS.keys()]
    return (names - ROWS.keys()) | {agent_of(row.typed) for row in rows if isinstance(row, Run)}
