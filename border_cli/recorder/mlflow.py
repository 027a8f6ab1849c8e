"""Delivery to MLflow, at `$MLFLOW_TRACKING_URI` or in ./mlflow.db, which `mlflow ui` displays."""

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
from border_cli.words import mask_secrets

SQLITE, STORE = "sqlite:///", "sqlite:///mlflow.db"
STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}  # any other status: FAILED
PARENT = "mlflow.parent"  # file in a sweep's directory that contains the ID of its MLflow run
NAME = re.compile(r"(?![./])[\w/. -]{1,250}")


def clean(name: str) -> str:
    """Returns a valid MLflow name for a param or metric: a normalized path. A changed name gets a
    checksum, so that different names stay different."""
    if NAME.fullmatch(name) and posixpath.normpath(name) == name:
        return name
    return f"{re.sub('[^a-zA-Z0-9]', '_', name)[:200]}-{crc32(json.dumps(name).encode()):08x}"


class MlflowRun:
    """A run in MLflow; a job of a sweep is a child of the sweep's run."""

    def __init__(
        self, state: dict[str, Any], facts: dict[str, Any], save_state: Callable[[], None]
    ) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # deliver.py retries
        self._state, self._step = state, facts["step"]
        self._open(facts["group"], save_state)
        if "run" not in state:
            self._create(facts)
            save_state()
        try:
            self._client.update_run(state["run"], status="RUNNING")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise self._other_store_error() from error
            raise
        if facts["tags"]["attempt"] == 1:  # MLflow params cannot be changed
            params = [Param(clean(key), value) for key, value in facts["settings"].items()]
            self._client.log_batch(state["run"], params=params)
        commit = facts["tags"].get("git_commit", "")
        self._tag({**facts["tags"], "mlflow.source.git.commit": commit})

    def _open(self, sweep: Path | None, save_state: Callable[[], None]) -> None:
        """Opens the store; creates it only if neither the run nor its sweep has a store yet."""
        uri = os.environ.get("MLFLOW_TRACKING_URI") or STORE
        is_file, path = uri.startswith(SQLITE), Path(uri.removeprefix(SQLITE).partition("?")[0])
        has_begun = "run" in self._state or (sweep and (sweep / PARENT).exists())
        if has_begun and is_file and not path.exists():
            raise self._other_store_error()
        self._store = f"{SQLITE}{path.absolute()}" if is_file else mask_secrets(uri)
        mlflow.set_tracking_uri(uri)
        with Path(__file__).open() as file:
            with suppress(OSError):  # some network file systems cannot lock
                fcntl.flock(file, fcntl.LOCK_EX)  # concurrent table creation corrupts a store
            self._state["opening"] = True
            save_state()
            self._client = MlflowClient()
        self._state["opening"] = False
        save_state()

    def _create(self, facts: dict[str, Any]) -> None:
        state = self._state
        name = facts["project"] or os.environ.get("MLFLOW_EXPERIMENT_NAME", "border_cli")
        experiment = mlflow.set_experiment(name).experiment_id
        tags = {}
        if facts["group"]:
            state["parent"] = self._parent(experiment, facts["group"])
            tags = {"mlflow.parentRunId": state["parent"]}
        run = self._client.create_run(experiment, run_name=facts["name"], tags=tags)
        state |= {"run": run.info.run_id, "store": self._store}

    def _other_store_error(self) -> ConfigError:
        store = shlex.quote(str(self._state.get("store", "STORE")))  # used only in this message
        return ConfigError(
            f"the records began in another store: deliver with MLFLOW_TRACKING_URI={store}"
        )

    def _parent(self, experiment: str, sweep: Path) -> str:
        """Returns the ID of the sweep's run; the first job of the sweep creates that run."""
        with (sweep / PARENT).open("a+", encoding="utf-8") as file:
            with suppress(OSError):  # as above
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
        # With the timestamp of the event, a row that is sent twice is stored only once.
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
