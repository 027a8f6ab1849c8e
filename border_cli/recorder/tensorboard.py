"""Event files for TensorBoard, written without torch, without TensorFlow and without a thread.

TensorBoard's own writer has a thread that dies of a full disk; its record format is all we need.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.append_file import AppendFile
from border_cli.recorder.config import StepAxis, TensorboardConfig

FOLDER = "tensorboard"


class TensorboardRecorder(Recorder):
    """One event per row in <run>/tensorboard; it is on disk as soon as `write` returns.

    TensorBoard keeps values in 32 bits and steps in 64.
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
        name = (
            f"events.out.tfevents.{int(wall_time_s()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        )
        self._file = AppendFile(info.run_dir / FOLDER / name)
        # Kept, not written: a full disk must not raise before anyone is there to count it.
        self._file.enqueue(_record(Event(wall_time=wall_time_s(), file_version="brain.Event:2")))

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        values = [
            Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()
        ]
        event = Event(
            wall_time=self._wall_time_s(),
            step=step.env_steps if self._axis is StepAxis.env_steps else step.opt_steps,
            summary=Summary(value=values),
        )
        self._file.append(_record(event))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _record(event: Event) -> bytes:
    """One event with the length and the checksums of TensorBoard's file format."""
    framed = io.BytesIO()
    RecordWriter(framed).write(event.SerializeToString())
    return framed.getvalue()
