"""MLflow: `$MLFLOW_TRACKING_URI`, or `mlflow.db` here, which `mlflow ui` shows."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}  # all else: FAILED
PARENT = "mlflow.parent"  # in the directory of a sweep: the id of its run


class Client:
    """One run, below that of its sweep."""

    def __init__(self, state: dict[str, Any], facts: dict[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # we try again ourselves
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))
        self._client, self._state, self._step = MlflowClient(), state, facts["step"]
        if "run" not in state:
            name = facts["project"] or os.environ.get("MLFLOW_EXPERIMENT_NAME", "border_cli")
            experiment = mlflow.set_experiment(name).experiment_id
            tags = {}
            if facts["group"]:
                state["parent"] = self._parent(experiment, facts["group"])
                tags = {"mlflow.parentRunId": state["parent"]}
            run = self._client.create_run(experiment, run_name=facts["name"], tags=tags)
            state["run"] = run.info.run_id
            self._client.log_batch(
                state["run"], params=[Param(*each) for each in facts["settings"].items()]
            )
        self._client.update_run(state["run"], status="RUNNING")
        commit = facts["tags"].get("git_commit", "")
        self._tag({**facts["tags"], "mlflow.source.git.commit": commit})

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

    def _tag(self, tags: dict[str, Any]) -> None:
        self._client.log_batch(
            self._state["run"], tags=[RunTag(key, str(value)) for key, value in tags.items()]
        )

    def rows(self, rows: list[dict[str, Any]]) -> None:
        # With the times of their events, so that one that is sent twice is there once.
        metrics = [
            Metric(name, value, int(1000 * row["at"]), row["metrics"][self._step])
            for row in rows
            for name, value in row["metrics"].items()
            if value is not None
        ]
        self._client.log_batch(self._state["run"], metrics=metrics)

    def file(self, path: Path, folder: str) -> None:
        self._client.log_artifact(self._state["run"], str(path), folder)

    def end(self, summary: dict[str, Any]) -> None:
        self._tag({name: summary[name] for name in ("status", "exit_reason")})
        status = STATUSES.get(summary["status"], "FAILED")
        self._client.set_terminated(self._state["run"], status)
        if "parent" in self._state:
            self._client.set_terminated(self._state["parent"])
