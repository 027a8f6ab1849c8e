"""MLflow: `$MLFLOW_TRACKING_URI`, or `mlflow.db` here, which `mlflow ui` shows."""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import mlflow
from mlflow import MlflowClient, MlflowException
from mlflow.entities import Metric, Param, RunTag

from border_cli.errors import ConfigError
from border_cli.words import masked

SQLITE, STORE = "sqlite:///", "sqlite:///mlflow.db"
STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}  # all else: FAILED
PARENT = "mlflow.parent"  # in the directory of a sweep: the id of its run
NAME = re.compile(r"(?![./])[\w/. -]{1,250}")


def clean(name: str) -> str:
    """The name of a param or metric as MLflow takes it: any path without detours. A changed one
    ends with its checksum, so that two names stay two."""
    if NAME.fullmatch(name) and posixpath.normpath(name) == name:
        return name
    return f"{re.sub('[^a-zA-Z0-9]', '_', name)[:200]}-{crc32(json.dumps(name).encode()):08x}"


class MlflowRun:
    """One run, below that of its sweep."""

    def __init__(
        self, state: dict[str, Any], facts: dict[str, Any], keep: Callable[[], None]
    ) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # we try again ourselves
        self._state, self._step = state, facts["step"]
        self._open(facts["group"], keep)
        if "run" not in state:
            self._create(facts)
            keep()
        try:
            self._client.update_run(state["run"], status="RUNNING")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise self._elsewhere() from error
            raise
        if facts["tags"]["attempt"] == 1:  # MLflow changes no param
            params = [Param(clean(key), value) for key, value in facts["settings"].items()]
            self._client.log_batch(state["run"], params=params)
        commit = facts["tags"].get("git_commit", "")
        self._tag({**facts["tags"], "mlflow.source.git.commit": commit})

    def _open(self, sweep: Path | None, keep: Callable[[], None]) -> None:
        """Opens the store; creates it only where neither the run nor its sweep has begun in one."""
        uri = os.environ.get("MLFLOW_TRACKING_URI") or STORE
        is_file, path = uri.startswith(SQLITE), Path(uri.removeprefix(SQLITE).partition("?")[0])
        has_begun = "run" in self._state or (sweep and (sweep / PARENT).exists())
        if has_begun and is_file and not path.exists():
            raise self._elsewhere()
        self._place = f"{SQLITE}{path.absolute()}" if is_file else masked(uri)
        mlflow.set_tracking_uri(uri)
        with Path(__file__).open() as file:
            with suppress(OSError):  # some network file systems
                fcntl.flock(file, fcntl.LOCK_EX)  # two processes that create tables ruin a store
            self._state["opening"] = True
            keep()
            self._client = MlflowClient()
        self._state["opening"] = False
        keep()

    def _create(self, facts: dict[str, Any]) -> None:
        state = self._state
        name = facts["project"] or os.environ.get("MLFLOW_EXPERIMENT_NAME", "border_cli")
        experiment = mlflow.set_experiment(name).experiment_id
        tags = {}
        if facts["group"]:
            state["parent"] = self._parent(experiment, facts["group"])
            tags = {"mlflow.parentRunId": state["parent"]}
        run = self._client.create_run(experiment, run_name=facts["name"], tags=tags)
        state |= {"run": run.info.run_id, "store": self._place}

    def _elsewhere(self) -> ConfigError:
        store = shlex.quote(str(self._state.get("store", "STORE")))  # for this message alone
        return ConfigError(
            f"the records began in another store: deliver with MLFLOW_TRACKING_URI={store}"
        )

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
            Metric(clean(name), value, int(1000 * row["at"]), row["metrics"][self._step])
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
