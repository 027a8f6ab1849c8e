"""Event files for TensorBoard, written without torch, TensorFlow or a thread.

TensorBoard's own writer has a thread that dies if the disk is full; only its record format is used.

HParams gets a session start with the settings and, at the end of the run, the best score and a
session end. There is no `experiment` record: TensorBoard would apply the first run's to all runs
and no longer detect which settings differ. The session end comes after the position of every
checkpoint, so a resume drops it. A resume truncates the event files to the checkpoint and starts a
new one with a marker that makes a running TensorBoard discard later values. The text page shows the
command and all settings of every attempt.
"""

from __future__ import annotations

import os
import shlex
import socket
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.core.output import Recorder, RecordStep, RunEnd, RunInfo
from border_cli.core.types import Metrics, State
from border_cli.errors import CheckpointError
from border_cli.recorder.config import StepAxis, TensorboardConfig
from border_cli.system.files import AppendFile, truncate

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

# TensorBoard sorts the groups of a page by name and expands the first two. Moving these groups to
# system/ makes episode/ and eval/ the first two.
SYSTEM, OF_SYSTEM = "system/", ("actor/", "async/")
PREFIX = "events.out.tfevents."  # TensorBoard reads every file with `tfevents` in its name
SUFFIX = ".border"  # distinguishes our event files from those of users in the same directory


class TensorboardRecorder(Recorder):
    """Writes an event per row to a file in the run directory before `write` returns.

    TensorBoard stores values in 32 bits and steps in 64. Every attempt of a run has its own file.
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
        self._began_s = wall_time_s()
        self._path = new_event_file(info.run_dir, self._began_s)
        self._settings = info.settings
        # Markdown shows indented lines verbatim.
        self._text = textwrap.indent(f"{shlex.join(info.command)}\n\n{info.resolved}", "    ")
        self._file = AppendFile(self._path)
        self._is_new, self._is_rewound = True, False
        self._last_step = -1  # highest step recorded, including earlier attempts

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        axis_step = self._axis_step(step)
        self._append_metrics(axis_step, metrics)
        self._last_step = max(self._last_step, axis_step)

    def _append_metrics(self, step: int, metrics: Metrics) -> None:
        from border_cli.recorder.tensorboard_events import metrics_summary

        self._append(step, metrics_summary({_tag(name): float(metrics[name]) for name in metrics}))

    def _axis_step(self, step: RecordStep) -> int:
        return step.env_steps if self._axis is StepAxis.env_steps else step.opt_steps

    def _append(self, step: int, summary: Summary) -> None:
        """Appends an event. In a new file it is preceded by the file's head. The head is not
        written in `__init__`, so that a full disk counts as a failed write."""
        # imported late: not needed before the first row
        from border_cli.recorder.tensorboard_events import event_row, file_head

        now_s = self._wall_time_s()
        head = b""
        if self._is_new:
            head = file_head(
                *(self._began_s, now_s, self._last_step + 1, self._settings, self._text),
                is_rewound=self._is_rewound,
            )
        self._file.append(head + event_row(now_s, step, summary))
        self._is_new = False

    def film(self, step: RecordStep, gif: bytes) -> None:
        """Adds an animated GIF to the image page."""
        from border_cli.recorder.tensorboard_events import film_summary

        self._append(self._axis_step(step), film_summary(gif))

    def position(self) -> State:
        return {"file": self._path.name, "size": self._file.size, "step": self._last_step}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Drops the rows after `position`, also in an open TensorBoard page.

        At a session start TensorBoard discards all values from that step on. An open page retains
        dropped rows at the step of `position` itself, such as those of a run's last window.
        """
        path = self._path.with_name(Path(position["file"]).name)
        if not (path.name.startswith(PREFIX) and path.name.endswith(SUFFIX)):
            raise CheckpointError(f"{path} is not an event file of the run")
        self._last_step = int(position["step"])
        truncate(path, int(position["size"]))
        for later in event_files(self._path.parent):
            if path.name < later.name and later != self._path:
                # Emptied, not deleted: a TensorBoard without its data server waits forever for a
                # deleted file.
                os.truncate(later, 0)
        self._is_rewound = True

    def end(self, ended: RunEnd) -> None:
        """Writes the result for the HParams page."""
        from border_cli.recorder.tensorboard_events import session_end

        if ended.best_score is not None:
            step = max(self._last_step, 0)
            self._append_metrics(step, {"eval/best_score": ended.best_score})
        if (summary := session_end(ended.status, self._wall_time_s())) is not None:
            self._append(0, summary)

    def close(self) -> None:
        self._file.close()


def event_files(run_dir: Path) -> list[Path]:
    """Returns our event files of a run, in the order in which TensorBoard reads them. They lie
    directly in the run directory, because TensorBoard names a run after the directory."""
    return sorted(path for path in run_dir.glob(f"{PREFIX}*{SUFFIX}") if path.is_file())


def new_event_file(run_dir: Path, wall_time_s: float) -> Path:
    """Returns a path that sorts after all others, since TensorBoard never rereads earlier files.

    The clock alone is not enough: a run may be resumed within the same second, or on a machine
    whose clock is behind.
    """
    times = (int(path.name.split(".")[3]) for path in event_files(run_dir))
    began_s = max([int(wall_time_s), *(time_s + 1 for time_s in times)])
    return run_dir / f"{PREFIX}{began_s:010d}.{socket.gethostname()}.{os.getpid()}.0{SUFFIX}"


def _tag(name: str) -> str:
    return SYSTEM + name if name.startswith(OF_SYSTEM) else name
