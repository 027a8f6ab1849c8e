"""Inline evaluation in the learner's thread, and the parts from which other runners are built.

For evaluations in the background, `trainer/evaluating.py` copies the agent's state with the
snapshot, so the best model saved is exactly the one that was evaluated.
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
from border_cli.core.stop import Heartbeat, MonitoredPart, StopFlag
from border_cli.core.types import Snapshot
from border_cli.evaluator.config import EpisodesConfig


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The evaluation of a snapshot, with further episodes to confirm a score that may end the run.

    The best of many evaluations is partly luck in its few episodes; further episodes are unbiased.
    """

    threshold: float | None = None  # score that ends the run
    rounds: int = 0  # maximum number of extensions by further episodes

    def evaluate(self, evaluator: Evaluator, policy: Policy, snapshot: Snapshot) -> Evaluation:
        """Evaluates these weights and extends the evaluation while its score reaches the threshold.
        Adds a film if one is due."""
        policy.load_snapshot(snapshot)
        if snapshot.episode_limit is not None:
            evaluator.limit_episodes(snapshot.episode_limit)
        evaluation = evaluator.evaluate(policy)
        for _ in range(self.rounds):
            if self.threshold is None or evaluation.score < self.threshold:
                break
            evaluation = evaluator.extend(policy, evaluation)
        return replace(evaluation, film=evaluator.film(policy, snapshot.opt_steps))


@dataclass(frozen=True, slots=True)
class PolicyRecipe:
    """A picklable factory of evaluation policies, all with the same random numbers."""

    factory: PolicyFactory
    seed: int  # seed of the run

    def __call__(self) -> Policy:
        return self.factory(generator(self.seed, Branch.EVALUATION, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesRecipe:
    """Everything needed to run evaluation episodes on any machine; picklable."""

    run_name: str
    config: EpisodesConfig
    spec: EnvSpec
    make_factory: Callable[[int], EnvFactory]  # takes the number of environments
    make_policy: Callable[[], Policy]
    seed: int
    imports: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationParts:
    """Everything from which a background runner is built (`EVALUATION_RUNNERS`)."""

    make_evaluator: Callable[..., Evaluator]  # takes `stop` and `heartbeat`; picklable
    make_policy: Callable[[], Policy]  # picklable
    imports: Sequence[str]
    confirmation: Confirmation
    stop: StopFlag
    actors: str  # name of the actor manager
    episodes: EpisodesRecipe | None  # None if the evaluator does not run episodes
    modules: Sequence[str]  # modules named in the settings of its environment
    trial: Callable[[], object]  # tries its environment on another machine; picklable


class InlineEvaluationRunner(EvaluationRunner):
    """A runner that evaluates within `submit`, in the learner's thread, while training pauses. The
    default for most runs, see `EffectiveSettings.evaluates_in_background`.

    Every snapshot gets a new policy, so that no result depends on earlier ones.
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
    def pulse(self) -> MonitoredPart:
        return self._pulse

    def submit(self, snapshot: Snapshot) -> None:
        policy = self._make_policy()
        self._evaluation = self._confirmation.evaluate(self._evaluator, policy, snapshot)

    def on_step(self, call: Callable[[], None]) -> None:
        self._pulse.on_beat = call

    def collect(self) -> Evaluation | None:
        evaluation, self._evaluation = self._evaluation, None
        return evaluation

    def wait(self) -> Evaluation:
        evaluation = self.collect()
        assert evaluation is not None, "nothing was submitted"
        return evaluation
