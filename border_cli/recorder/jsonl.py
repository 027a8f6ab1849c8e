"""One JSON object per row of metrics, for jq, pandas and `read_metrics`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.config import JsonlConfig
from border_cli.system.files import METRICS, AppendFile, replace_non_finite, truncate


class JsonlRecorder(Recorder):
    """Appends to <run>/metrics.jsonl; a row is in the file when `write` returns."""

    def __init__(self, config: JsonlConfig, *, info: RunInfo, console: Any = None) -> None:
        del config, console
        self._path = info.run_dir / METRICS
        self._file = AppendFile(self._path)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        # JSON has no NaN or infinity
        row: dict[str, Any] = replace_non_finite({**asdict(step), **metrics})
        if final:
            row["final"] = True
        self._file.append(json.dumps(row, allow_nan=False).encode() + b"\n")

    def position(self) -> State:
        return {"file": METRICS, "size": self._file.size}

    def rewind(self, position: Mapping[str, Any]) -> None:
        truncate(self._path, int(position["size"]))

    def close(self) -> None:
        self._file.close()
