"""Callbacks that record their calls or end a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from border_cli.core.callback import Callback
from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.core.types import Episode, State


class Remembers(Callback):
    """A callback that records every call with its counters; its records are saved."""

    def __init__(self) -> None:
        self.told: list[list[Any]] = []
        self.around: list[str] = []  # start and end of the run; not saved

    def _tell(self, what: str, moment: RecordStep, value: object = None) -> None:
        self.told.append([what, moment.opt_steps, moment.env_steps, value])

    def on_start(self, info: RunInfo) -> None:
        self.around.append(info.run_dir.name)

    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        self._tell("episode", moment, episode.score)

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        self._tell("update", moment, float(metrics["loss"]))

    def on_evaluation(self, moment: RecordStep, evaluation: Evaluation) -> None:
        self._tell("evaluation", moment, evaluation.score)

    def on_checkpoint(self, moment: RecordStep, folder: Path) -> None:
        self._tell("checkpoint", moment, folder.name)

    def on_end(self, ended: RunEnd) -> None:
        self.around.append(ended.status)

    def state_dict(self) -> State:
        return {"told": self.told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.told = state["told"]


class StopsAt(Callback):
    """A callback that stops the run after `opt_steps` updates."""

    def __init__(self, opt_steps: int) -> None:
        self._opt_steps = opt_steps

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        del metrics
        if moment.opt_steps == self._opt_steps:
            self.stop("it is enough")
