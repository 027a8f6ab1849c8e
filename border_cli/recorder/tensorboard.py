"""Event files for TensorBoard, written without torch, without TensorFlow and without a thread.

TensorBoard's own writer has a thread that dies of a full disk; its record format is all we need.

HParams gets a session start with the settings, and at the end of the run the best score and a
session end. There is no `experiment` record: TensorBoard would use the first run's for all runs and
no longer see which settings differ. The session end comes after the position of every checkpoint,
so a resume drops it. A resume truncates the event files to the checkpoint and starts a new one with
a marker that makes a running TensorBoard drop what it had shown. The page of texts has the command
and all settings of every attempt.
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
from border_cli.system.files import AppendFile, cut

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

# TensorBoard sorts the groups of a page by name and opens the first two. With the groups that would
# sort before them under another name, these are episode/ and eval/.
SYSTEM, OF_SYSTEM = "system/", ("actor/", "async/")
PREFIX = "events.out.tfevents."  # TensorBoard reads every file with `tfevents` in its name
SUFFIX = ".border"  # of ours, in a directory where users may put event files of their own


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
        self._began_s = wall_time_s()
        self._path = new_event_file(info.run_dir, self._began_s)
        self._settings = info.settings
        # In Markdown lines that are indented are shown as they are.
        self._text = textwrap.indent(f"{shlex.join(info.command)}\n\n{info.resolved}", "    ")
        self._file = AppendFile(self._path)
        self._is_new, self._is_rewound = True, False
        self._last_step = -1  # the highest that was recorded, earlier attempts included

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        at = self._at(step)
        self._append_metrics(at, metrics)
        self._last_step = max(self._last_step, at)

    def _append_metrics(self, at: int, metrics: Metrics) -> None:
        from border_cli.recorder.tensorboard_events import metrics_summary

        self._append(at, metrics_summary({_tag(name): float(metrics[name]) for name in metrics}))

    def _at(self, step: RecordStep) -> int:
        return step.env_steps if self._axis is StepAxis.env_steps else step.opt_steps

    def _append(self, step: int, summary: Summary) -> None:
        """Appends an event, in a new file behind its head: there a full disk is counted."""
        # imported late: a run needs it with its first row
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
        """A moving picture on the page of images."""
        from border_cli.recorder.tensorboard_events import film_summary

        self._append(self._at(step), film_summary(gif))

    def position(self) -> State:
        return {"file": self._path.name, "size": self._file.size, "step": self._last_step}

    def rewind(self, position: Mapping[str, Any]) -> None:
        """Drops the rows after `position`, also from a page that has shown them.

        TensorBoard drops all from a step on where a file begins with the start of a session. A page
        that stays open keeps rows at the last step before it, as the last window of a run.
        """
        path = self._path.with_name(Path(position["file"]).name)
        if not (path.name.startswith(PREFIX) and path.name.endswith(SUFFIX)):
            raise CheckpointError(f"{path} is not an event file of the run")
        self._last_step = int(position["step"])
        cut(path, int(position["size"]))
        for later in event_files(self._path.parent):
            if path.name < later.name and later != self._path:
                # Empty, it stays: a TensorBoard without its data server waits forever for a file
                # that was there before.
                os.truncate(later, 0)
        self._is_rewound = True

    def end(self, ended: RunEnd) -> None:
        """Writes the result for the HParams page.

        A resume drops it again: it lies after the position of every checkpoint.
        """
        from border_cli.recorder.tensorboard_events import session_end

        if ended.best_score is not None:
            at = max(self._last_step, 0)
            self._append_metrics(at, {"eval/best_score": ended.best_score})
        if (summary := session_end(ended.status, self._wall_time_s())) is not None:
            self._append(0, summary)

    def close(self) -> None:
        self._file.close()


def event_files(run_dir: Path) -> list[Path]:
    """Those of the run, in the order in which TensorBoard reads them: directly in its directory, by
    which TensorBoard names it."""
    return sorted(each for each in run_dir.glob(f"{PREFIX}*{SUFFIX}") if each.is_file())


def new_event_file(run_dir: Path, wall_time_s: float) -> Path:
    """A name that sorts after all others: TensorBoard never returns to an earlier file.

    The clock alone is not enough. A run may be resumed within the same second, or on a machine
    whose clock is behind.
    """
    times = (int(each.name.split(".")[3]) for each in event_files(run_dir))
    begun = max([int(wall_time_s), *(each + 1 for each in times)])
    return run_dir / f"{PREFIX}{begun:010d}.{socket.gethostname()}.{os.getpid()}.0{SUFFIX}"


def _tag(name: str) -> str:
    return SYSTEM + name if name.startswith(OF_SYSTEM) else name
