"""Reads the metrics that the `jsonl` recorder wrote; works during the run as well."""

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
    """Returns the rows of a metrics.jsonl, oldest first; an incomplete last line is skipped.

    Values that are not finite numbers are None. A missing file has no rows. Raises
    `CheckpointError` if any other line is not a JSON object or the file cannot be read.
    """
    return list(_rows(path, b""))


def rows_with(path: Path, name: str) -> list[dict[str, Any]]:
    """Returns the rows that contain the metric `name`; none if there is no file.

    Only lines that contain the name are decoded: few rows of a run have an evaluation.
    """
    return [row for row in _rows(path, json.dumps(name).encode()) if name in row]


def last_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the last few dozen rows of a metrics.jsonl, oldest first; none if there is no
    readable file. Invalid lines are skipped."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return []
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_NBYTES))
        lines = file.read(TAIL_NBYTES).split(b"\n")
    rows = []
    for line in lines:  # the first line may be truncated as well
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return [_numbers(row) for row in rows if isinstance(row, dict)]


def number(value: object) -> float | None:
    """Returns the value if it is a finite float or a 64-bit integer, otherwise None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and abs(value) < 2**63 else None


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: number(value) for name, value in row.items()}


def _rows(path: Path, substring: bytes) -> Iterator[dict[str, Any]]:
    try:
        lines = read_bytes(path, MOST_METRICS_NBYTES).split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    for line_number, line in enumerate(lines, start=1):
        if not line or substring not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if line_number == len(lines):  # no newline: the line is still being written
                break
            raise CheckpointError(f"{path}, line {line_number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CheckpointError(f"{path}, line {line_number}: not a JSON object")
        yield _numbers(row)
