"""Who evaluates during a run: in line, or beside the learner."""

from __future__ import annotations

from abc import ABC, abstractmethod

from border_cli.core.interfaces import Evaluation
from border_cli.core.stop import Pulse
from border_cli.core.types import Snapshot


class Judge(ABC):
    """Evaluates one snapshot at a time, here or elsewhere; called by the learner's thread."""

    in_background: bool  # whether training goes on between `submit` and `collect`

    @property
    @abstractmethod
    def pulse(self) -> Pulse:
        """For the watchdog."""

    def open(self) -> None:  # noqa: B027 - nothing needs to be started in line
        """Starts what will judge; called before training begins."""

    def close(self) -> None:  # noqa: B027 - whoever made an evaluator closes it
        """Ends what was opened, also in the middle of an evaluation; may be called twice."""

    @abstractmethod
    def submit(self, snapshot: Snapshot) -> None:
        """Begins an evaluation; not while one is under way."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether an evaluation is under way or not collected."""

    @abstractmethod
    def collect(self) -> Evaluation | None:
        """The outcome of the evaluation under way, once, as soon as it is there."""

    @abstractmethod
    def wait(self) -> Evaluation:
        """The outcome of the evaluation under way. Raises what the `StopFlag` holds."""
