"""The progress of a sweep job, written to its `run.json`, where the sweep's command reads it."""

from __future__ import annotations

from collections.abc import Callable

from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.panel import RunView

EVERY_S = 2.0  # run time between two writes, which wait for the disk


class ProgressRecorder(Recorder):
    """Writes the progress of the run at most every two seconds. Owned by the learner's thread."""

    def __init__(self, info: RunInfo, write: Callable[[dict[str, object]], None]) -> None:
        """`write` stores the figures where the sweep's command reads them."""
        self._view = RunView(info)
        self._write = write
        self._written_s = -EVERY_S

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        view, now_s = self._view, progress.step.time_s
        view.take_progress(progress)
        if now_s < self._written_s + EVERY_S:
            return
        self._written_s = now_s
        nearest = view.nearest_budget()
        self._write(
            {
                "phase": view.phase,
                "opt_steps": view.step.opt_steps,
                "fraction": nearest.fraction if nearest else None,  # fraction of the nearest limit
                "left_s": nearest.left_s if nearest else None,
                "score": view.value("eval/return"),
                "best": view.best[0] if view.best else None,
                "updates_per_sec": view.rates().updates,
            }
        )

    def close(self) -> None:
        """Does nothing: the run itself records its end."""
