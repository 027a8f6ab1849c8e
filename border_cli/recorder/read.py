"""Reads back what the `jsonl` recorder wrote, also during the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError

TAIL_NBYTES = 2**16
METRICS = "metrics.jsonl"  # in a run directory


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, oldest first; a last line that is not yet whole is left out.

    A value of None was not finite. Raises `CheckpointError` where another line is no JSON object.
    """
    return list(_rows(path, b""))


def rows_with(path: Path, name: str) -> list[dict[str, Any]]:
    """The rows that have a metric of this name; none where there is no file.

    Only their lines are decoded: evaluations are few among the rows of a run.
    """
    if not path.is_file():
        return []
    return [row for row in _rows(path, json.dumps(name).encode()) if name in row]


def last_rows(path: Path) -> list[dict[str, Any]]:
    """The rows at the end of a metrics.jsonl, oldest first, some dozens; what is no row is left
    out, and none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_NBYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = []
    for line in lines:  # the first one may be cut, too
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def _rows(path: Path, holding: bytes) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line or holding not in line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # nothing ends this line: it is still being written
                break
            raise CheckpointError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CheckpointError(f"{path}, line {number}: not a JSON object")
        yield row
