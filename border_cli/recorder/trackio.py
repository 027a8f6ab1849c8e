"""Delivery to trackio's local store, which `trackio show` displays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trackio


class TrackioRun:
    """A run in trackio, identified by its name, in the group of its sweep."""

    def __init__(
        self, state: dict[str, Any], facts: dict[str, Any], save_state: Callable[[], None]
    ) -> None:
        del state, save_state  # a run is identified by its name
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
