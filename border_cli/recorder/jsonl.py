"""One JSON object per row of metrics, for jq, pandas and `read_metrics`."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.append_file import AppendFile, cut
from border_cli.recorder.config import JsonlConfig
from border_cli.recorder.read import METRICS

log = logging.getLogger(__name__)

SUPERSEDED_NAME = "superseded.jsonl"


class JsonlRecorder(Recorder):
    """Appends to <run>/metrics.jsonl; each row is there as soon as `write` returns."""

    def __init__(self, config: JsonlConfig, *, info: RunInfo, console: Any = None) -> None:
        del config, console
        self._path = info.run_dir / METRICS
        _cut_torn_line(self._path)
        self._file = AppendFile(self._path)
        self._superseded: AppendFile | None = None  # rows that a resumed run records again

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        self._file.append(_line(step, metrics, final=final))

    def position(self) -> State:
        return {"file": METRICS, **self._file.position()}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Moves the rows after `position` to <run>/superseded.jsonl."""
        size = _line_start(self._path, int(position["size"]))
        missing = cut(self._path, {**position, "size": size}, keep=self._supersede)
        if missing:
            self._file.enqueue(missing)

    def _supersede(self, rows: bytes) -> None:
        """Keeps rows in a file of their own; where the disk is full they wait for room in memory.

        A crash before the cut leaves them in both files; they are never in neither.
        """
        path = self._path.with_name(SUPERSEDED_NAME)
        self._superseded = AppendFile(path)
        try:
            self._superseded.append(rows)
            self._superseded.sync()
        except OSError as error:
            log.warning("could not write superseded rows to %s yet (%s)", path, error)

    def flush(self) -> None:
        self._file.flush()
        if self._superseded is not None:
            self._superseded.flush()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            if self._superseded is not None:
                self._superseded.close()


def _line(step: RecordStep, metrics: Metrics, *, final: bool) -> bytes:
    row: dict[str, Any] = {
        "opt_steps": step.opt_steps,
        "env_steps": step.env_steps,
        "time_s": step.time_s,
    }
    row |= {name: _json_number(value) for name, value in metrics.items()}
    if final:
        row["final"] = True
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _json_number(value: float) -> float | None:
    """JSON has neither NaN nor infinity: both become null."""
    number = float(value)
    return number if math.isfinite(number) else None


def _cut_torn_line(path: Path) -> None:
    """Removes a last line without its end, which a killed process left."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _line_start(path: Path, offset: int) -> int:
    """The start of the line that contains `offset`; only in an edited file is that another byte."""
    with path.open("rb") as file:
        before = file.read(offset)
    return before.rfind(b"\n") + 1 if len(before) == offset else offset
