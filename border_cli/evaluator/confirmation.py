"""Confirms the score of an evaluation that may end a run."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.core.interfaces import Evaluation, Evaluator, Policy


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How a score that may end a run is confirmed.

    The best of many evaluations was lucky in its few episodes; others do not share that luck.
    """

    threshold: float | None = None  # the score that ends the run
    rounds: int = 0  # of other episodes

    def evaluated(self, evaluator: Evaluator, policy: Policy) -> Evaluation:
        """An evaluation, extended by more episodes while its score reaches the threshold."""
        evaluation = evaluator.evaluate(policy)
        for _ in range(self.rounds):
            if self.threshold is None or evaluation.score < self.threshold:
                break
            evaluation = evaluator.extended(policy, evaluation)
        return evaluation
