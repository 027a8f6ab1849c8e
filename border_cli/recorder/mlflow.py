"""MLflow: `$MLFLOW_TRACKING_URI`, or `mlflow.db` in the current directory, which `mlflow ui` shows."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

for _name, _value in (("MAX_RETRIES", "1"), ("TIMEOUT", "10")):  # we try again ourselves
    os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{_name}", _value)

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

STORE = "sqlite:///mlflow.db"
STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}  # all else: FAILED
MOST_LENGTH = 6_000  # of a value, in characters
MOST_AT_ONCE = 500  # metrics; 100 parameters
PARENT = "mlflow.parent"  # in the directory of a sweep: the id of its run


class Client:
    """One run, below that of its sweep."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", STORE))

    def begin(self, attempt: int, facts: dict[str, Any]) -> None:
        self._step = facts["step"]
        if "run" not in self._state:
            experiment, parent = self._experiment(facts["project"]), {}
            if facts["group"] is not None:
                parent = {"mlflow.parentRunId": self._parent(experiment, Path(facts["group"]))}
            run = self._client.create_run(experiment, run_name=facts["name"], tags=parent)
            self._state["run"] = run.info.run_id
            for some in _batches(list(facts["settings"].items()), 100):
                params = [Param(key, str(value)[:MOST_LENGTH]) for key, value in some]
                self._client.log_batch(self._run, params=params)
        self._client.update_run(self._run, status="RUNNING")
        git = facts["git"] or {}
        tags = {
            "attempt": attempt,
            f"attempt.{attempt}.command": " ".join(facts["command"]),
            "mlflow.source.git.commit": git.get("commit", ""),
            "git.dirty": git.get("dirty", ""),
        }
        self._tag(tags)

    @property
    def _run(self) -> str:
        return str(self._state["run"])

    def _experiment(self, project: str | None) -> str:
        name = project or os.environ.get("MLFLOW_EXPERIMENT_NAME", "border_cli")
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _parent(self, experiment: str, sweep: Path) -> str:
        """The run of the sweep, which the first of its jobs creates."""
        with (sweep / PARENT).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            parent = file.read()
            if not parent:
                parent = self._client.create_run(experiment, run_name=sweep.name).info.run_id
                file.write(parent)
        self._state["parent"] = parent
        return parent

    def _tag(self, tags: dict[str, Any]) -> None:
        found = [RunTag(key, str(value)[:MOST_LENGTH]) for key, value in tags.items()]
        self._client.log_batch(self._run, tags=found)

    def rows(self, attempt: int, rows: Sequence[dict[str, Any]]) -> None:
        metrics = [
            Metric(name, value, int(1000 * row["at"]), row[self._step])
            for row in rows
            for name, value in (_counters(row) | {"attempt": attempt} | row["metrics"]).items()
            if value is not None
        ]
        for some in _batches(metrics, MOST_AT_ONCE):
            self._client.log_batch(self._run, metrics=some)

    def artifact(self, path: Path, folder: str) -> None:
        self._client.log_artifact(self._run, str(path), folder)

    def end(self, facts: dict[str, Any]) -> None:
        self._tag({"status": facts["status"], "exit_reason": facts["reason"]})
        self._client.set_terminated(self._run, STATUSES.get(facts["status"], "FAILED"))
        if "parent" in self._state:
            self._client.set_terminated(self._state["parent"])


def _counters(row: dict[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in ("opt_steps", "env_steps", "time_s")}


def _batches(values: list[Any], most: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while some := list(islice(rest, most)):
        yield some
