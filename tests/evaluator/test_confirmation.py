"""A score that may end a run is held against other episodes."""

from __future__ import annotations

import numpy as np
import pytest
from judged import Weighed, weighing

from border_cli.core.interfaces import Confirmation, Evaluation, Evaluator, Policy
from border_cli.core.stop import Heartbeat
from border_cli.evaluator.inline import InlineEvaluationRunner


class Lucky(Evaluator):
    """Scores as listed, a round of one episode after the other."""

    def __init__(self, *rounds: float) -> None:
        self._rounds = rounds
        self.weights: list[float] = []

    def evaluate(self, policy: Policy) -> Evaluation:
        return self._of(policy, 1)

    def extended(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        return self._of(policy, len(evaluation.returns) + 1)

    def _of(self, policy: Policy, count: int) -> Evaluation:
        assert isinstance(policy, Weighed)
        self.weights.append(policy.weight)
        returns = self._rounds[:count]
        return Evaluation(
            score=float(np.mean(returns)), returns=returns, lengths=(1,) * count, metrics={}
        )

    def close(self) -> None:
        raise AssertionError("whoever made an evaluator closes it")


@pytest.mark.parametrize(
    ("threshold", "rounds", "played", "score"),
    [
        (500.0, 3, (500.0, 500.0, 440.0), 480.0),  # luck that the third round did not share
        (500.0, 1, (500.0, 500.0), 500.0),
        (450.0, 3, (500.0, 500.0, 440.0, 400.0), 460.0),  # still enough, and all were played
        (500.1, 3, (500.0,), 500.0),
        (500.0, 0, (500.0,), 500.0),
        (None, 3, (500.0,), 500.0),
    ],
)
def test_a_score_that_reaches_the_threshold_is_of_more_episodes_as_long_as_it_does(
    threshold: float | None, rounds: int, played: tuple[float, ...], score: float
) -> None:
    evaluator = Lucky(500.0, 500.0, 440.0, 400.0)
    judge = InlineEvaluationRunner(
        evaluator, Weighed, Heartbeat("learner"), Confirmation(threshold, rounds)
    )
    judge.submit(weighing(3.0))
    evaluation = judge.wait()
    assert (evaluation.returns, evaluation.score) == (played, score)
    assert evaluator.weights == [3.0] * len(played)


def test_an_evaluator_without_other_episodes_is_taken_at_its_word() -> None:
    class Certain(Lucky):
        extended = Evaluator.extended

    judge = InlineEvaluationRunner(
        Certain(9.0), Weighed, Heartbeat("learner"), Confirmation(9.0, 2)
    )
    judge.submit(weighing(1.0))
    assert judge.wait().returns == (9.0,)
