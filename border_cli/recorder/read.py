"""Reads back what the `jsonl` recorder wrote, also during the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, oldest first; a last line that is not yet whole is left out.

    A value of None was not finite. Raises `CheckpointError` where another line is no JSON object.
    """
    lines = path.read_bytes().split(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # nothing ends this line: it is still being written
                break
            raise CheckpointError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CheckpointError(f"{path}, line {number}: not a JSON object")
        rows.append(row)
    return rows
