"""trackio: a local store, which `trackio show` shows; `$TRACKIO_SPACE_ID` and the like are its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trackio


class Client:
    """One run, in the group of its sweep."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def begin(self, attempt: int, facts: dict[str, Any]) -> None:
        sweep, git = facts["group"], facts["git"] or {}
        self._state.setdefault("run", facts["name"])
        self._step = facts["step"]
        self._run = trackio.init(
            project=facts["project"] or os.environ.get("TRACKIO_PROJECT", "border_cli"),
            name=self._state["run"],
            group=None if sweep is None else Path(sweep).name,
            config={
                **facts["settings"],
                "command": " ".join(facts["command"]),
                "git_commit": git.get("commit"),
                "attempt": attempt,
            },
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def rows(self, attempt: int, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            counters = {name: row[name] for name in ("opt_steps", "env_steps", "time_s")}
            metrics = {**row["metrics"], **counters, "attempt": attempt}
            self._run.log(metrics, step=row[self._step])

    def artifact(self, path: Path, folder: str) -> None:
        trackio.log_artifact(str(path), name=f"{folder}-{path.stem}", type=folder)

    def end(self, facts: dict[str, Any]) -> None:
        self._run.finish()
