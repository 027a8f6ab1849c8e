"""Recorders of experiment trackers: MLflow, Weights & Biases, trackio.

The learner only appends lines to an outbox in the run directory, `trackers/<name>.jsonl`; a process
of its own, `deliver.py`, hands them to the tracker. What cannot be delivered waits there for the
next attempt of the run, and neither the tracker nor that process can end the run.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunEnd, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.config import TrackerConfig
from border_cli.recorder.films import film_path
from border_cli.system.files import AppendFile, cut, finite, readable_bytes

log = logging.getLogger(__name__)


def outbox_of(run_dir: Path, tracker: str) -> Path:
    """What is to be delivered, an event a line."""
    return run_dir / "trackers" / f"{tracker}.jsonl"


def state_of(outbox: Path) -> dict[str, Any]:
    """What the process remembers: `delivered` bytes, the attempts begun, ids of the tracker."""
    found = readable_bytes(outbox.with_suffix(".json")) or b"{}"
    return {"delivered": 0, "attempt": 0, **json.loads(found)}


class TrackerRecorder(Recorder):
    """Hands everything on; begins with the first row, after what an earlier attempt recorded."""

    def __init__(self, config: TrackerConfig, *, info: RunInfo, console: Any = None) -> None:
        del console
        self._config, self._info, self._name = config, info, config.tracker
        self._path = outbox_of(info.run_dir, self._name)
        self._open: tuple[AppendFile, subprocess.Popen[bytes]] | None = None

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._append("row", metrics={**metrics, **asdict(step)})

    def film(self, step: RecordStep, gif: bytes) -> None:
        del gif
        self._append("file", path=str(film_path(step)), folder="films")

    def position(self) -> State:
        return {"size": 0 if self._open is None else self._open[0].size}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """What a tracker has, it keeps: the rows that follow have the number of another attempt."""
        if self._path.exists():
            cut(self._path, max(int(position["size"]), state_of(self._path)["delivered"]))

    def end(self, ended: RunEnd) -> None:
        if self._open is not None:
            summary = {**ended.summary, "status": ended.status, "exit_reason": ended.exit_reason}
            self._append("end", summary=summary)

    def close(self) -> None:
        if self._open is None:
            return
        (outbox, process), self._open = self._open, None
        size = outbox.size
        outbox.close()
        process.stdin.close()  # type: ignore[union-attr]  # it ends once it has delivered the rest
        try:
            process.wait(self._config.close_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._pass_on(process)
        if (left := size - state_of(self._path)["delivered"]) > 0:
            log.warning(
                "%s: %d bytes of records are not delivered (see %s). To try again: python -m "
                "border_cli.recorder.deliver %s %s",
                self._name, left, self._path.with_suffix(".log"), self._info.run_dir, self._name,
            )  # fmt: skip

    def _append(self, kind: str, **facts: Any) -> None:
        if self._open is None:
            self._open = AppendFile(self._path), self._started()
            info = self._info
            self._append(
                "begin",
                name=info.run_dir.name if info.group else f"{info.name} {info.run_dir.name}",
                group=info.group and str(info.group),
                project=self._config.project,
                step=str(getattr(self._config, "step", "opt_steps")),
                settings=dict(info.settings),
                tags={"command": " ".join(info.command)},
            )
        outbox, process = self._open
        event = finite({"kind": kind, "at": time.time(), **facts})  # seconds since 1970
        outbox.append(json.dumps(event, allow_nan=False).encode() + b"\n")
        self._pass_on(process)

    def _started(self) -> subprocess.Popen[bytes]:
        """The process; it hears of no signal to the command, and of its end by its closed input."""
        # -P: a file of the current directory is no tracker's package, whatever its name.
        command = [sys.executable, "-P", "-m", "border_cli.recorder.deliver"]
        arguments = [str(self._info.run_dir), self._name, str(self._config.close_timeout_s)]
        with self._path.with_suffix(".log").open("ab") as errors:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
        return process

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """Logs what the process has to say."""
        for line in (process.stdout.read() or b"").splitlines():  # type: ignore[union-attr]
            log.warning("%s: %s", self._name, line.decode(errors="replace"))


class MlflowRecorder(TrackerRecorder):
    """For MLflow."""


class WandbRecorder(TrackerRecorder):
    """For Weights & Biases."""


class TrackioRecorder(TrackerRecorder):
    """For trackio."""
