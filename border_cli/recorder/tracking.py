"""Recorders of experiment trackers: MLflow, Weights & Biases, trackio.

The learner only appends lines to a file in the run directory, `trackers/<name>.jsonl`; a process of
its own, `deliver.py`, hands them to the tracker. What cannot be delivered waits there for the next
attempt of the run, and neither the tracker nor that process can end the run.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunEnd, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.config import TrackerConfig
from border_cli.recorder.films import film_path
from border_cli.system.files import AppendFile, cut, finite, readable_bytes

log = logging.getLogger(__name__)

FOLDER = "trackers"


def outbox_of(run_dir: Path, tracker: str) -> Path:
    """What is to be delivered, an event a line."""
    return run_dir / FOLDER / f"{tracker}.jsonl"


def delivered(run_dir: Path, tracker: str) -> dict[str, Any]:
    """What the delivering process remembers: `delivered` bytes of the outbox, ids of the tracker."""
    found = readable_bytes(outbox_of(run_dir, tracker).with_suffix(".json"))
    state: dict[str, Any] = json.loads(found or b"{}")
    return state


class TrackerRecorder(Recorder):
    """Hands everything on; begins with the first row, after what an earlier attempt recorded."""

    def __init__(self, config: TrackerConfig, *, info: RunInfo, console: Any = None) -> None:
        del console
        self._config, self._info, self._name = config, info, config.tracker
        self._path = outbox_of(info.run_dir, self._name)
        self._outbox: AppendFile | None = None  # None: nothing is recorded yet, or no longer
        self._process: subprocess.Popen[bytes] | None = None
        self._said = ""  # what the process has not ended with a line feed

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        at = {"opt_steps": step.opt_steps, "env_steps": step.env_steps, "time_s": step.time_s}
        self._append("row", at | {"metrics": finite(dict(metrics))})

    def film(self, step: RecordStep, gif: bytes) -> None:
        del gif
        self._append("film", {"opt_steps": step.opt_steps, "path": str(film_path(step))})

    def position(self) -> State:
        return {"size": 0 if self._outbox is None else self._outbox.size}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """What a tracker has, it keeps: the rows that follow have the number of another attempt."""
        kept = delivered(self._info.run_dir, self._name).get("delivered", 0)
        cut(self._path, max(int(position["size"]), kept))

    def end(self, ended: RunEnd) -> None:
        if self._outbox is not None:
            summary = finite(dict(ended.summary))
            facts = {"status": ended.status, "reason": ended.exit_reason, "summary": summary}
            self._append("end", facts)

    def close(self) -> None:
        outbox, process = self._outbox, self._process
        self._outbox = self._process = None
        if outbox is None or process is None:
            return
        size = outbox.size
        outbox.close()
        assert process.stdin is not None
        process.stdin.close()  # which ends it, once it has delivered the rest
        try:
            process.wait(self._config.close_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listen(process)
        left = size - delivered(self._info.run_dir, self._name).get("delivered", 0)
        if left > 0:
            log.warning(
                "%s: %d bytes of records are not delivered and wait in %s; python -m "
                "border_cli.recorder.deliver %s %s tries again",
                self._name, left, self._path, self._info.run_dir, self._name,
            )  # fmt: skip

    def _append(self, kind: str, facts: Mapping[str, Any]) -> None:
        if self._outbox is None:
            self._outbox = AppendFile(self._path)
            begun = self._facts_of_the_attempt()
            self._outbox.append(_line("begin", begun))
            self._process = _started(self._info.run_dir, self._name, self._config.close_timeout_s)
        self._outbox.append(_line(kind, facts))
        if self._process is not None:
            self._listen(self._process)

    def _facts_of_the_attempt(self) -> dict[str, Any]:
        info = self._info
        return {
            "name": info.run_dir.name if info.group else f"{info.name} {info.run_dir.name}",
            "group": None if info.group is None else str(info.group),
            "project": self._config.project,
            "step": str(getattr(self._config, "step", "opt_steps")),
            "settings": dict(info.settings),
            "command": list(info.command),
        }

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Logs what the process says, and once that it is gone."""
        assert process.stdout is not None
        said = process.stdout.read() or b""
        *lines, self._said = f"{self._said}{said.decode(errors='replace')}".split("\n")
        for each in lines:
            log.warning("%s: %s", self._name, each)
        if process.poll() and self._process is not None:
            self._process = None  # what is recorded from here on waits for another attempt
            log.warning(
                "%s: the process that delivers ended with status %d, see %s; the run goes on",
                self._name, process.returncode, self._path.with_suffix(".log"),
            )  # fmt: skip


class MlflowRecorder(TrackerRecorder):
    """For MLflow."""


class WandbRecorder(TrackerRecorder):
    """For Weights & Biases."""


class TrackioRecorder(TrackerRecorder):
    """For trackio."""


def _line(kind: str, facts: Mapping[str, Any]) -> bytes:
    """An event, with its time in seconds since 1970."""
    return json.dumps({"kind": kind, "at": time.time(), **facts}, allow_nan=False).encode() + b"\n"


def _started(run_dir: Path, name: str, timeout_s: float) -> subprocess.Popen[bytes]:
    """The process; it hears of no signal to the command, and of its end by its closed input."""
    # -P: a file of the current directory is no tracker's package, whatever its name.
    command = [sys.executable, "-P", "-m", "border_cli.recorder.deliver", str(run_dir), name]
    with outbox_of(run_dir, name).with_suffix(".log").open("ab") as output:
        process = subprocess.Popen(
            [*command, f"{timeout_s:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process
