"""The evaluations of a run: their submission, their scores and the best model."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from border_cli.core.interfaces import Agent, Evaluation, EvaluationRunner
from border_cli.core.output import FILE_ONLY, RecordStep
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import Timing
from border_cli.core.types import State
from border_cli.words import pluralize

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Scores:
    """Best and last score; owned by the learner's thread."""

    best: float = -math.inf
    best_opt_steps: int | None = None
    last: float | None = None
    last_opt_steps: int | None = None
    evaluations: int = 0
    in_a_row: int = 0  # consecutive evaluations that reached the threshold
    # Best score for `patience`. After a resume, `best` may be of a model newer than the checkpoint.
    best_counted: float = -math.inf
    without_best: int = 0  # consecutive evaluations without a new best score

    def add(self, score: float, opt_steps: int, threshold: float | None) -> bool:
        """Adds a score; returns whether it is strictly the best so far (at a tie the older wins).

        A score that is not finite becomes neither the best nor the last, and reaches no limit.
        """
        if opt_steps == self.last_opt_steps:  # a resume repeats the step that was interrupted
            return False
        self.evaluations += 1
        self.last_opt_steps = opt_steps
        if not math.isfinite(score):
            return False
        self.last = score
        reached = threshold is not None and score >= threshold
        self.in_a_row = self.in_a_row + 1 if reached else 0
        self.without_best = 0 if score > self.best_counted else self.without_best + 1
        self.best_counted = max(score, self.best_counted)
        return self.update_best(score, opt_steps)

    def update_best(self, score: float, opt_steps: int) -> bool:
        """Updates the best score, perhaps from a saved model; returns whether it has changed."""
        better = score > self.best
        if better:
            self.best, self.best_opt_steps = score, opt_steps
        return better

    def state_dict(self) -> State:
        """Returns all fields, with None for a missing best score."""
        fields = asdict(self)
        return {name: None if value == -math.inf else value for name, value in fields.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, value)
        self.best, self.best_counted = (
            -math.inf if score is None else float(score) for score in (self.best, self.best_counted)
        )


class EpisodeLimit:
    """The length limit of evaluated episodes if neither the environment nor a setting has one.

    Decided once, before the first evaluation, so that all scores of a run are comparable. Owned by
    the learner's thread.
    """

    FACTOR = 5  # multiple of the longest training episode
    LEAST, MOST = 200, 10_000  # env steps

    def __init__(
        self,
        *,
        needed: bool = False,
        num_envs: int = 1,
        mean_length: int = 0,
        on_decided: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`num_envs`: environments of all actors. `mean_length`: of a data set's episodes, or 0."""
        self.steps: int | None = None
        self._needed = needed
        self._num_envs = num_envs
        self._mean_length = mean_length
        self._on_decided = on_decided

    def decide(self, longest: int, env_steps: int) -> None:
        """Decides the limit, if one is needed and not yet decided. `longest` is the length of the
        longest finished training episode, or 0 if none has ended within `env_steps`."""
        if not self._needed or self.steps is not None:
            return
        length = longest or self._mean_length or math.ceil(env_steps / self._num_envs)
        steps = self.steps = min(max(self.FACTOR * length, self.LEAST), self.MOST)
        log.info(
            "the environment has no time limit: evaluated episodes end after %s (%d times the "
            "length of training episodes, %d to %s); evaluator.max_episode_steps sets another "
            "limit",
            *(pluralize(steps, "step"), self.FACTOR, self.LEAST, f"{self.MOST:,}"),
        )
        self._on_decided(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvaluation:
    """A running evaluation, and the agent that is saved if its score is the best."""

    step: RecordStep
    counters: Mapping[str, float]
    state: Mapping[str, Any] | None  # None for inline evaluations


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The result of an evaluation, with the step and the counters of its weights."""

    step: RecordStep
    counters: Mapping[str, float]
    evaluation: Evaluation
    best: Mapping[str, Any] | None  # state of the agent, if its score is the best so far


class Evaluations:
    """Submits the agent for evaluation and records the scores; owned by the learner's thread."""

    def __init__(
        self,
        runner: EvaluationRunner,
        *,
        agent: Agent,
        threshold: float | None,
        limit: EpisodeLimit,
        timing: Timing,
        heartbeat: Heartbeat,
    ) -> None:
        self.limit = limit
        self.in_background = runner.in_background
        self._runner = runner
        self._agent = agent
        self._threshold = threshold
        self._timing = timing
        self._heartbeat = heartbeat
        self._pending: PendingEvaluation | None = None
        self.scores = Scores()
        self.was_pending = False  # whether the loaded state has a running evaluation
        self._has_warned = False  # about a score that is not finite

    @property
    def pending(self) -> bool:
        """True while an evaluation is running."""
        return self._pending is not None

    def submit(self, step: RecordStep, counters: Mapping[str, float]) -> None:
        """Submits the current agent, or skips it while another evaluation is running."""
        if self._pending is not None:
            log.warning(
                "skipped the evaluation at update %d: the one of update %d is still running "
                "(try a larger trainer.eval_interval or fewer evaluator.num_episodes)",
                *(step.opt_steps, self._pending.step.opt_steps),
            )
            return
        with self._timing.section("evaluate"), self._heartbeat.waiting("the evaluation"):
            state = self._agent.state_dict() if self.in_background else None
            self._pending = PendingEvaluation(step=step, counters=counters, state=state)
            snapshot = self._agent.snapshot(env_steps=step.env_steps)
            self._runner.submit(replace(snapshot, episode_limit=self.limit.steps))

    def collect(self) -> Evaluated | None:
        """Returns the result of the running evaluation once it is available, else None."""
        if self._pending is None:
            return None
        with self._timing.section("evaluate"):
            evaluation = self._runner.collect()
            return self._finish(evaluation) if evaluation is not None else None

    def wait(self) -> Evaluated:
        """Waits for the result of the running evaluation."""
        with self._timing.section("evaluate"), self._heartbeat.waiting("the evaluation"):
            return self._finish(self._runner.wait())

    def _finish(self, evaluation: Evaluation) -> Evaluated:
        pending, self._pending = self._pending, None
        assert pending is not None
        best = self.scores.add(evaluation.score, pending.step.opt_steps, self._threshold)
        if evaluation.not_finite is not None and not self._has_warned:
            self._has_warned = True
            log.warning(
                "ignored the evaluation at update %d: %s",
                *(pending.step.opt_steps, evaluation.not_finite),
            )
        log.info(
            "evaluation at update %d: %.10g%s",
            *(pending.step.opt_steps, evaluation.score, " (new best)" if best else ""),
            extra=FILE_ONLY,
        )
        state = pending.state
        if best and state is None:
            state = self._agent.state_dict()
        return Evaluated(
            step=pending.step,
            counters=pending.counters,
            evaluation=evaluation,
            best=state if best else None,
        )

    def state_dict(self) -> State:
        """Returns the scores, and whether an evaluation is running in the background.

        An interrupted inline evaluation is repeated with the rest of its unfinished step.
        """
        return {
            "scores": self.scores.state_dict(),
            "episode_limit": self.limit.steps,
            "pending": self.pending and self.in_background,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.scores.load_state_dict(state["scores"])
        self.limit.steps = state["episode_limit"] or self.limit.steps
        self.was_pending = bool(state["pending"])
