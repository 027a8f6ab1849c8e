"""Evaluation in the learner's thread: training pauses meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from border_cli.core.interfaces import Confirmation, Evaluation, EvaluationRunner, Evaluator, Policy
from border_cli.core.stop import Pulse
from border_cli.core.types import Snapshot


class InlineEvaluationRunner(EvaluationRunner):
    """Judges a snapshot as it is submitted; what repeats to the bit is judged so.

    Every snapshot gets a policy of its own, so that a verdict does not depend on those before it.
    """

    in_background = False

    def __init__(
        self,
        evaluator: Evaluator,
        make_policy: Callable[[], Policy],
        pulse: Pulse,
        confirmation: Confirmation = Confirmation(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self._evaluator = evaluator
        self._confirmation = confirmation
        self._pulse = pulse
        self._make_policy = make_policy
        self._evaluation: Evaluation | None = None

    @property
    def pulse(self) -> Pulse:
        return self._pulse

    def submit(self, snapshot: Snapshot) -> None:
        policy = self._make_policy()
        policy.load_snapshot(snapshot)
        self._evaluation = self._confirmation.evaluated(self._evaluator, policy)

    @property
    def busy(self) -> bool:
        return self._evaluation is not None

    def collect(self) -> Evaluation | None:
        evaluation, self._evaluation = self._evaluation, None
        return evaluation

    def wait(self) -> Evaluation:
        evaluation = self.collect()
        assert evaluation is not None, "nothing was submitted"
        return evaluation
