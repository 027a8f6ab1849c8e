"""Who evaluates during a run: in line, or beside the learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from border_cli.core.interfaces import Evaluation, Evaluator, Policy
from border_cli.core.stop import Pulse
from border_cli.core.types import Snapshot


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a score that may end a run must hold against: luck in a few episodes.

    Of many evaluations the best is a lucky one. Other episodes do not share the luck.
    """

    threshold: float | None = None  # the score that ends the run
    rounds: int = 0  # of other episodes

    def evaluated(self, evaluator: Evaluator, policy: Policy) -> Evaluation:
        """An evaluation, of more episodes as long as its score reaches the threshold."""
        evaluation = evaluator.evaluate(policy)
        for _ in range(self.rounds):
            if self.threshold is None or evaluation.score < self.threshold:
                break
            evaluation = evaluator.extended(policy, evaluation)
        return evaluation


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
