"""The interface of callbacks: code of users that follows a run, and may end it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.core.types import Episode, State


class Callback:
    """Follows a run; only the learner's thread calls it, between two updates.

    Each hook gets a moment (updates, env steps and seconds of the run) and what has happened then.
    What a hook raises ends the run; so does `stop`, as one that has reached its limit. A resumed
    run goes on from `state_dict`. A hook that is not overridden takes no time.
    """

    stop_reason: str | None = None  # why the run shall end; None while it may go on

    def stop(self, reason: str) -> None:
        """Ends the run before its next update; `run.json` says why."""
        self.stop_reason = reason

    def on_start(self, info: RunInfo) -> None:
        """The run begins, or goes on after `load_state_dict`."""

    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        """A training episode has ended, and the learner has its last transitions."""

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        """An update was made. `float(metrics["loss"])` waits for a GPU."""

    def on_evaluation(self, moment: RecordStep, evaluation: Evaluation) -> None:
        """The weights of that moment were evaluated; of an earlier one, if in the background."""

    def on_checkpoint(self, moment: RecordStep, folder: Path) -> None:
        """A checkpoint is on the disk, for which the learner has waited. A run that is resumed
        from it makes this call again, because its state is of the time before."""

    def on_end(self, ended: RunEnd) -> None:
        """The run has ended, also by a failure or a signal."""

    def state_dict(self) -> State:
        """What goes into each checkpoint: numbers, texts, numpy arrays, dicts and lists of them."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; not called where a checkpoint has none."""
