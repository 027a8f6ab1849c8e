"""Reads back what the `jsonl` recorder wrote, also during the run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from border_cli.errors import CheckpointError
from border_cli.system.files import read_bytes

TAIL_NBYTES = 2**16
MOST_METRICS_NBYTES = 2**30


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, oldest first; a last line that is not yet whole is left out.

    A value of None is not a finite number. Raises `CheckpointError` where another line is no JSON
    object, or where the file cannot be read.
    """
    return list(_rows(path, b""))


def rows_with(path: Path, name: str) -> list[dict[str, Any]]:
    """The rows that have a metric of this name; none where there is no file.

    Only their lines are decoded: evaluations are few among the rows of a run.
    """
    return [row for row in _rows(path, json.dumps(name).encode()) if name in row]


def last_rows(path: Path) -> list[dict[str, Any]]:
    """The rows at the end of a metrics.jsonl, oldest first, some dozens; what is no row is left
    out, and none where there is no file that can be read."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return []
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_NBYTES))
        lines = file.read(TAIL_NBYTES).split(b"\n")
    rows = []
    for line in lines:  # the first one may be cut, too
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return [_numbers(row) for row in rows if isinstance(row, dict)]


def number(value: object) -> float | None:
    """The value where it is a finite number of 64 bits; None for any other."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and abs(value) < 2**63 else None


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: number(value) for name, value in row.items()}


def _rows(path: Path, holding: bytes) -> Iterator[dict[str, Any]]:
    try:
        lines = read_bytes(path, MOST_METRICS_NBYTES).split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    for at, line in enumerate(lines, start=1):
        if not line or holding not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if at == len(lines):  # nothing ends this line: it is still being written
                break
            raise CheckpointError(f"{path}, line {at}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CheckpointError(f"{path}, line {at}: not a JSON object")
        yield _numbers(row)
