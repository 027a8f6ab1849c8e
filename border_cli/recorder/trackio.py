"""trackio: a local store, which `trackio show` shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trackio


class TrackioRun:
    """One run, known by its name, in the group of its sweep."""

    def __init__(
        self, state: dict[str, Any], facts: dict[str, Any], keep: Callable[[], None]
    ) -> None:
        del state, keep  # a run is known by its name
        self._step = facts["step"]
        self._run: Any = trackio.init(
            facts["project"] or "border_cli",
            **facts["init"],
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def rows(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._run.log(row["metrics"], step=row["metrics"][self._step])

    def file(self, path: Path, folder: str) -> None:
        self._run.log_artifact(str(path), name=f"{folder}-{path.stem}", type=folder)

    def end(self, summary: dict[str, Any]) -> None:
        self._run.config |= summary
        self._run.finish()
