"""MLflow: `$MLFLOW_TRACKING_URI`, or `mlflow.db` here, which `mlflow ui` shows."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}  # all else: FAILED
MOST_LENGTH, MOST_AT_ONCE = 5_000, 100  # of MLflow: characters of a value, values of a request
PARENT = "mlflow.parent"  # in the directory of a sweep: the id of its run


class Client:
    """One run, below that of its sweep."""

    def __init__(self, state: dict[str, Any]) -> None:
        for name, value in (("MAX_RETRIES", "1"), ("TIMEOUT", "10")):  # we try again ourselves
            os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
        self._state = state
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))

    def begin(self, attempt: int, facts: dict[str, Any]) -> None:
        self._step, state = facts["step"], self._state
        if "run" not in state:
            name = facts["project"] or os.environ.get("MLFLOW_EXPERIMENT_NAME", "border_cli")
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name)
            tags = {}
            if facts["group"]:
                state["parent"] = self._parent(experiment, Path(facts["group"]))
                tags = {"mlflow.parentRunId": state["parent"]}
            run = self._client.create_run(experiment, run_name=facts["name"], tags=tags)
            state["run"] = run.info.run_id
            params = [Param(key, _cut(value)) for key, value in facts["settings"].items()]
            self._log("params", params)
        self._client.update_run(state["run"], status="RUNNING")
        tags = {**facts["tags"], "attempt": attempt, f"attempt.{attempt}": facts["tags"]["command"]}
        self._tag({**tags, "mlflow.source.git.commit": facts["tags"].get("git_commit", "")})

    def _parent(self, experiment: str, sweep: Path) -> str:
        """The run of the sweep, which the first of its jobs creates."""
        with (sweep / PARENT).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            parent = file.read()
            if not parent:
                parent = str(self._client.create_run(experiment, run_name=sweep.name).info.run_id)
                file.write(parent)
        return parent

    def _log(self, kind: str, values: Sequence[Any]) -> None:
        for first in range(0, len(values), MOST_AT_ONCE):
            some: Any = {kind: values[first : first + MOST_AT_ONCE]}
            self._client.log_batch(self._state["run"], **some)

    def _tag(self, tags: dict[str, Any]) -> None:
        self._log("tags", [RunTag(key, _cut(value)) for key, value in tags.items()])

    def rows(self, rows: list[dict[str, Any]]) -> None:
        # With the times of their events, so that one that is sent twice is there once.
        metrics = [
            Metric(name, value, int(1000 * row["at"]), row["metrics"][self._step])
            for row in rows
            for name, value in row["metrics"].items()
            if value is not None
        ]
        self._log("metrics", metrics)

    def file(self, path: Path, folder: str) -> None:
        self._client.log_artifact(self._state["run"], str(path), folder)

    def end(self, summary: dict[str, Any]) -> None:
        self._tag({name: summary[name] for name in ("status", "exit_reason")})
        status = STATUSES.get(summary["status"], "FAILED")
        self._client.set_terminated(self._state["run"], status)
        if "parent" in self._state:
            self._client.set_terminated(self._state["parent"])


def _cut(value: object) -> str:
    return str(value)[:MOST_LENGTH]
