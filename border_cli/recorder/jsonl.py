"""One JSON object per row of metrics, for jq, pandas and `read_metrics`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.append_file import AppendFile
from border_cli.recorder.config import JsonlConfig

FILE_NAME = "metrics.jsonl"


class JsonlRecorder(Recorder):
    """Appends to <run>/metrics.jsonl; each row is there as soon as `write` returns."""

    def __init__(self, config: JsonlConfig, *, info: RunInfo, console: Any = None) -> None:
        del config, console
        path = info.run_dir / FILE_NAME
        _cut_torn_line(path)
        self._file = AppendFile(path)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        self._file.append(_line(step, metrics, final=final))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


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
