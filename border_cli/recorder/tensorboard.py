"""Event files for TensorBoard, written without torch, without TensorFlow and without a thread.

TensorBoard's own writer has a thread that dies of a full disk; its record format is all we need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboard.plugins.hparams.plugin_data_pb2 import (
    HParamsPluginData,
    SessionEndInfo,
    SessionStartInfo,
)

from border_cli.core.output import Recorder, RecordStep, RunEnd, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.recorder.append_file import AppendFile
from border_cli.recorder.archive import Archive
from border_cli.recorder.config import StepAxis, TensorboardConfig
from border_cli.recorder.event_files import EventFiles, aside, put_aside, record, rows

# TensorBoard sorts the groups of a page by name and opens the first two. With the groups that would
# sort before them under another name, these are episode/ and eval/.
SYSTEM, OF_SYSTEM = "system/", ("actor/", "async/")
STATUSES = {"done": STATUS_SUCCESS, "failed": STATUS_FAILURE}  # else unknown


class TensorboardRecorder(Recorder):
    """One event per row, in an event file in the run directory; on disk when `write` returns.

    TensorBoard keeps values in 32 bits and steps in 64. Every attempt of a run has its own file.
    The settings of the run are a session of TensorBoard's HParams plug-in.
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
        self._files = EventFiles(info.run_dir)
        now_s = wall_time_s()
        self._path = self._files.new(now_s)
        self._name = str(self._path.relative_to(info.run_dir))
        version = record(Event(wall_time=now_s, file_version="brain.Event:2"))
        head = version + _session_start(info, now_s)
        self._file = AppendFile(self._path, run_dir=info.run_dir, head=head)
        self._archive = Archive()
        self._last_step = -1  # the highest that was recorded, earlier attempts included
        # Kept, not written: a full disk must not raise before anyone is there to count it.
        self._file.enqueue(head)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        at = step.env_steps if self._axis is StepAxis.env_steps else step.opt_steps
        self._last_step = max(self._last_step, at)
        self._write(at, metrics)

    def _write(self, at: int, metrics: Metrics) -> None:
        values = [
            Summary.Value(tag=self._tag(name), simple_value=float(value))
            for name, value in metrics.items()
        ]
        event = Event(wall_time=self._wall_time_s(), step=at, summary=Summary(value=values))
        self._file.append(record(event))

    def _tag(self, name: str) -> str:
        """A run of an earlier version keeps the names under which its curves began."""
        moved = name.startswith(OF_SYSTEM) and not self._files.in_folder
        return SYSTEM + name if moved else name

    def position(self) -> State:
        return {"file": self._name, "step": self._last_step, **self._file.position()}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Hides the rows after `position`, also from a TensorBoard that has shown them.

        That one drops all from a step on where a file begins with the start of a session, and it
        drops it from every file. Rows that stay although they lie beyond that step (the last
        window of a run that ended has the step of the row before) are therefore written again.
        """
        path = self._files.named(position["file"])
        self._last_step = int(position["step"])
        later = [each for each in self._files.all() if path.name < each.name and each != self._path]
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
        for file in self._files.all():
            for step, row in rows(file):
                if step >= first:
                    self._file.enqueue(row)

    def end(self, ended: RunEnd) -> None:
        """Writes the result for the HParams page.

        A resume drops it again: it lies after the position of every checkpoint.
        """
        if ended.best_score is not None:
            self._write(max(self._last_step, 0), {"eval/best_score": ended.best_score})
        if ended.status in STATUSES:
            now_s = self._wall_time_s()
            session = SessionEndInfo(status=STATUSES[ended.status], end_time_secs=now_s)
            data = HParamsPluginData(session_end_info=session)
            self._file.append(_hparams(hparams.SESSION_END_INFO_TAG, data, now_s))

    def flush(self) -> None:
        self._file.flush()
        self._archive.flush()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._archive.close()


def _session_start(info: RunInfo, wall_time_s: float) -> bytes:
    """The settings of a run, by which the HParams page compares it with others.

    Of several attempts TensorBoard keeps the first session.
    """
    started = SessionStartInfo(start_time_secs=wall_time_s)
    for name, value in info.settings.items():
        if isinstance(value, bool):
            started.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            started.hparams[name].number_value = value
        else:
            started.hparams[name].string_value = value
    data = HParamsPluginData(session_start_info=started)
    return _hparams(hparams.SESSION_START_INFO_TAG, data, wall_time_s)


def _hparams(tag: str, data: HParamsPluginData, wall_time_s: float) -> bytes:
    value = Summary.Value(
        tag=tag, metadata=hparams.create_summary_metadata(data), tensor=hparams.NULL_TENSOR
    )
    return record(Event(wall_time=wall_time_s, summary=Summary(value=[value])))
