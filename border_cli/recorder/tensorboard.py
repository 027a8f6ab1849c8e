"""Event files for TensorBoard, written without torch, without TensorFlow and without a thread.

TensorBoard's own writer has a thread that dies of a full disk; its record format is all we need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.append_file import AppendFile
from border_cli.recorder.archive import Archive
from border_cli.recorder.config import StepAxis, TensorboardConfig
from border_cli.recorder.event_files import (
    aside,
    event_files,
    new_event_file,
    put_aside,
    record,
    rows,
)

FOLDER = "tensorboard"


class TensorboardRecorder(Recorder):
    """One event per row in <run>/tensorboard; it is on disk as soon as `write` returns.

    TensorBoard keeps values in 32 bits and steps in 64. Every attempt of a run has its own file.
    """

    def __init__(
        self,
        config: TensorboardConfig,
        *,
        info: RunInfo,
        console: Any = None,
        wall_time_s: Callable[[], float] = time.time,
    ) -> None:
        del console
        self._axis = config.step
        self._wall_time_s = wall_time_s
        self._path = new_event_file(info.run_dir / FOLDER, wall_time_s())
        version = record(Event(wall_time=wall_time_s(), file_version="brain.Event:2"))
        self._file = AppendFile(self._path, run_dir=info.run_dir, head=version)
        self._archive = Archive()
        self._last_step = -1  # the highest that was recorded, earlier attempts included
        # Kept, not written: a full disk must not raise before anyone is there to count it.
        self._file.enqueue(version)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        values = [
            Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()
        ]
        at = step.env_steps if self._axis is StepAxis.env_steps else step.opt_steps
        self._last_step = max(self._last_step, at)
        event = Event(wall_time=self._wall_time_s(), step=at, summary=Summary(value=values))
        self._file.append(record(event))

    def position(self) -> State:
        file = f"{FOLDER}/{self._path.name}"
        return {"file": file, "step": self._last_step, **self._file.position()}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Hides the rows after `position`, also from a TensorBoard that has shown them.

        That one drops all from a step on where a file begins with the start of a session, and it
        drops it from every file. Rows that stay although they lie beyond that step (the last
        window of a run that ended has the step of the row before) are therefore written again.
        """
        path = self._path.with_name(Path(position["file"]).name)
        self._last_step = int(position["step"])
        later = [
            each
            for each in event_files(path.parent)
            if path.name < each.name and each != self._path
        ]
        first = self._last_step + 1
        for file, start in [(path, int(position["size"])), *((each, 0) for each in later)]:
            first = min([first, *(step for step, _ in rows(file, start))])
        missing = self._archive.cut(path, position, into=aside(path))
        for file in later:
            put_aside(file)
        self._begin_session(first)
        if missing:
            self._file.enqueue(missing)
        with suppress(OSError):  # it waits, and the next `write` says so
            self._file.flush()

    def _begin_session(self, first: int) -> None:
        start = SessionLog(status=SessionLog.START)
        begin = record(Event(wall_time=self._wall_time_s(), step=first, session_log=start))
        self._file.enqueue(begin + begin)  # TensorBoard ignores the first that it ever sees
        if first > self._last_step:
            return
        for file in event_files(self._path.parent):
            for step, row in rows(file):
                if step >= first:
                    self._file.enqueue(row)

    def flush(self) -> None:
        self._file.flush()
        self._archive.flush()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._archive.close()
