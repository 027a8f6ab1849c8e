"""Runs evaluations in the learner's thread.

Agent state and counters are copied with the snapshot, so the best model saved is exactly the one
that was evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from border_cli.core.interfaces import (
    Evaluation,
    EvaluationRunner,
    Evaluator,
    Policy,
    PolicyFactory,
)
from border_cli.core.seeding import Branch, generator
from border_cli.core.stop import Pulse
from border_cli.core.types import Snapshot
from border_cli.evaluator.confirmation import Confirmation


@dataclass(frozen=True, slots=True)
class PolicyRecipe:
    """Makes policies for evaluations, each with the same random numbers; picklable."""

    factory: PolicyFactory
    seed: int  # of the run

    def __call__(self) -> Policy:
        return self.factory(generator(self.seed, Branch.EVALUATION, 1))


class InlineEvaluationRunner(EvaluationRunner):
    """Evaluates a snapshot in the learner's thread as it is submitted, while training pauses; a
    bit-reproducible run always does.

    Every snapshot gets a policy of its own, so that a result does not depend on those before it.
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
        evaluation = self._confirmation.evaluated(self._evaluator, policy)
        film = self._evaluator.film(policy, snapshot.opt_steps)
        self._evaluation = evaluation if film is None else replace(evaluation, film=film)

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
