"""Runs evaluations in the learner's thread, and what other runners are made from.

Agent state and counters are copied with the snapshot, so the best model saved is exactly the one
that was evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from border_cli.core.interfaces import (
    EnvFactory,
    Evaluation,
    EvaluationRunner,
    Evaluator,
    Policy,
    PolicyFactory,
)
from border_cli.core.seeding import Branch, generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, Pulse, StopFlag
from border_cli.core.types import Snapshot
from border_cli.evaluator.config import EpisodesConfig


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How a snapshot is evaluated, and a score confirmed that may end a run.

    The best of many evaluations was lucky in its few episodes; others do not share that luck.
    """

    threshold: float | None = None  # the score that ends the run
    rounds: int = 0  # of other episodes

    def evaluated(self, evaluator: Evaluator, policy: Policy, snapshot: Snapshot) -> Evaluation:
        """An evaluation of these weights, extended by more episodes while its score reaches the
        threshold; with a film where one is due."""
        policy.load_snapshot(snapshot)
        if snapshot.episode_limit is not None:
            evaluator.limit_episodes(snapshot.episode_limit)
        evaluation = evaluator.evaluate(policy)
        for _ in range(self.rounds):
            if self.threshold is None or evaluation.score < self.threshold:
                break
            evaluation = evaluator.extended(policy, evaluation)
        return replace(evaluation, film=evaluator.film(policy, snapshot.opt_steps))


@dataclass(frozen=True, slots=True)
class PolicyRecipe:
    """Makes policies for evaluations, each with the same random numbers; picklable."""

    factory: PolicyFactory
    seed: int  # of the run

    def __call__(self) -> Policy:
        return self.factory(generator(self.seed, Branch.EVALUATION, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesRecipe:
    """The parts that the episodes of a run are made from, wherever they are played; picklable."""

    run_name: str
    config: EpisodesConfig
    spec: EnvSpec
    make_factory: Callable[[int], EnvFactory]  # takes the number of environments
    make_policy: Callable[[], Policy]
    seed: int
    imports: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationParts:
    """All that a runner of evaluations beside the learner is made from (`EVALUATION_RUNNERS`)."""

    make_evaluator: Callable[..., Evaluator]  # takes `stop` and `heartbeat`; picklable
    make_policy: Callable[[], Policy]  # picklable
    imports: Sequence[str]
    confirmation: Confirmation
    stop: StopFlag
    actors: str  # name of the actor manager
    episodes: EpisodesRecipe | None  # of an evaluator that plays episodes
    modules: Sequence[str]  # all that the settings of its environment name
    trial: Callable[[], object]  # of its environment, before another machine plays; picklable


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
        pulse: Heartbeat,
        confirmation: Confirmation = Confirmation(),
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
        self._evaluation = self._confirmation.evaluated(self._evaluator, policy, snapshot)

    def on_step(self, call: Callable[[], None]) -> None:
        self._pulse.on_beat = call

    def collect(self) -> Evaluation | None:
        evaluation, self._evaluation = self._evaluation, None
        return evaluation

    def wait(self) -> Evaluation:
        evaluation = self.collect()
        assert evaluation is not None, "nothing was submitted"
        return evaluation
