"""Recorders for experiment trackers: MLflow, Weights & Biases, trackio.

The learner only appends lines to an outbox in the run directory, `trackers/<name>.jsonl`. A
separate process, `deliver.py`, sends them to the tracker. Events that cannot be delivered wait in
the outbox for the next attempt. Neither the tracker nor the process can end the run.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from border_cli.core.output import Recorder, RecordStep, RunEnd, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.config import TrackerConfig
from border_cli.recorder.films import film_path
from border_cli.system.files import AppendFile, read_bytes_or_empty, replace_non_finite, truncate

log = logging.getLogger(__name__)

EVENT_S = 5.0  # grace period for the event that is being delivered when the time is up


def outbox_path(run_dir: Path, tracker: str) -> Path:
    """Returns the path of the events to deliver, one per line."""
    return run_dir / "trackers" / f"{tracker}.jsonl"


def state_of(outbox: Path) -> dict[str, Any]:
    """Reads the state of the delivery: the number of bytes `delivered`, the last attempt `begun`,
    IDs of the tracker, and whether the process is `opening` a database."""
    return {"delivered": 0, **json.loads(read_bytes_or_empty(outbox.with_suffix(".json")) or "{}")}


class TrackerRecorder(Recorder):
    """Writes all records to the outbox. The delivery process starts with the first event; events of
    earlier attempts that are still pending are delivered first."""

    def __init__(self, config: TrackerConfig, *, info: RunInfo, console: Any = None) -> None:
        del console
        self._config, self._info, self._name = config, info, config.tracker
        self._path = outbox_path(info.run_dir, self._name)
        self._outbox = AppendFile(self._path)
        self._attempt = 1 + self._path.read_bytes().count(b'{"kind": "begin"')
        self._process: subprocess.Popen[bytes] | None = None
        self._has_begun = False  # whether the outbox has the first event of this attempt
        self._end_s = 0.0  # deadline of `wait`

    @property
    def recorder_name(self) -> str:
        return self._name

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._append("row", metrics={**metrics, **asdict(step), "attempt": self._attempt})

    def film(self, step: RecordStep, gif: bytes) -> None:
        del gif
        self._append("film", path=str(film_path(step)))

    def position(self) -> State:
        return {"size": self._outbox.size}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Drops only undelivered events, since a tracker cannot delete rows, and none while another
        process still delivers. Later rows have a new attempt number."""
        with self._path.open("rb") as outbox:
            try:
                fcntl.flock(outbox, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # a process delivers, or this file system has no locks
                return
            truncate(self._path, max(int(position["size"]), state_of(self._path)["delivered"]))

    def end(self, ended: RunEnd) -> None:
        summary = {**ended.summary, "status": ended.status, "exit_reason": ended.exit_reason}
        self._append("end", summary=summary)

    def close(self) -> None:
        self._outbox.close()
        if self._process is None:
            return
        self._process.stdin.close()  # type: ignore[union-attr]  # delivers the rest, then exits
        self._end_s = time.monotonic() + self._config.close_timeout_s

    def wait(self) -> None:
        if self._process is None:
            return
        if not self._has_ended(self._end_s - time.monotonic()):
            self._stop(self._process)
        self._log_output(self._process)
        if self._process.returncode is not None:
            self._process.stdout.close()  # type: ignore[union-attr]
        if state_of(self._path)["delivered"] < self._path.stat().st_size:
            log.warning(
                "%s: not all records are delivered (see %s). To try again: python -P -m "
                "border_cli.recorder.deliver %s",
                *(self._name, self._path.with_suffix(".log"), f"{self._info.run_dir} {self._name}"),
            )

    def _has_ended(self, timeout_s: float) -> bool:
        """Returns whether the process ends within `timeout_s`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, timeout_s))  # type: ignore[union-attr]
            return True
        return False

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Ends the process after its current event, or kills it after `EVENT_S` unless it creates
        or migrates a database: a kill would corrupt the database for all later runs."""
        process.terminate()
        if self._has_ended(EVENT_S):
            return
        if state_of(self._path).get("opening"):
            log.warning(
                "%s: process %d still creates or migrates a database and will end after that",
                *(self._name, process.pid),
            )
        else:
            process.kill()
            process.wait()

    def _append(self, kind: str, **facts: Any) -> None:
        if self._process is None:
            self._process = self._start_process()
        if not self._has_begun and kind != "begin":
            info = self._info
            self._append(
                "begin",
                name="/".join(info.run_dir.parts[-2:]),
                project=self._config.project,
                step=str(self._config.step),
                settings=dict(info.settings),
                tags={"command": " ".join(info.command), "attempt": self._attempt},
            )
            self._has_begun = True  # only now: the disk may have been full
        event = replace_non_finite({"kind": kind, "at": time.time(), **facts})  # seconds since 1970
        self._outbox.append(json.dumps(event, allow_nan=False).encode() + b"\n")
        self._log_output(self._process)

    def _start_process(self) -> subprocess.Popen[bytes]:
        """Starts the delivery process. Signals to the command do not reach it, since it has its own
        session; its stdin is closed when the command ends."""
        # -P: a module in the current directory must not replace the tracker's package.
        command = [sys.executable, "-P", "-m", "border_cli.recorder.deliver"]
        command += [str(self._info.run_dir), self._name, str(self._config.close_timeout_s)]
        with self._path.with_suffix(".log").open("ab") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
        return process

    def _log_output(self, process: subprocess.Popen[bytes]) -> None:
        """Logs the output of the process as warnings."""
        if output := process.stdout.read():  # type: ignore[union-attr]
            log.warning("%s: %s", self._name, output.decode().strip())
