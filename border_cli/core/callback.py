"""The base class of callbacks: user code that follows a run and may end it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.core.types import Episode, State


class Callback:
    """Base class of callbacks; only the learner's thread calls their hooks, between two updates.

    `moment` is the position in the run (updates, env steps, seconds) at which an event happened.
    If a hook raises, the run fails; `stop` ends it in the same way as a limit. A resumed run
    restores the callback from `state_dict`. A hook that is not overridden costs no time.
    """

    stop_reason: str | None = None  # reason to end the run; None while it may continue

    def stop(self, reason: str) -> None:
        """Ends the run before its next update; `run.json` records the reason."""
        self.stop_reason = reason

    def on_start(self, info: RunInfo) -> None:
        """Called when the run starts; in a resumed run, after `load_state_dict`."""

    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        """Called when the learner has received the last transition of a training episode."""

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        """Called after each update. `float(metrics["loss"])` waits for a GPU."""

    def on_evaluation(self, moment: RecordStep, evaluation: Evaluation) -> None:
        """Called after an evaluation; `moment` is when the evaluated weights were copied."""

    def on_checkpoint(self, moment: RecordStep, folder: Path) -> None:
        """Called once a checkpoint is on disk; the learner waits for it. A run resumed from this
        checkpoint repeats the call, because the saved state predates it."""

    def on_end(self, ended: RunEnd) -> None:
        """Called at the end of the run, also after a failure or a signal, if `on_start` was called.
        Not called if files of the run were deleted."""

    def state_dict(self) -> State:
        """Returns the state to save: numbers, strings, numpy arrays, dicts and lists of these."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; not called if a checkpoint has no such state."""
