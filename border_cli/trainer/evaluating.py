"""Which snapshots are evaluated, what came of it, and which model is the best."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from border_cli.core.interfaces import Agent, Evaluation, EvaluationRunner
from border_cli.core.output import FILE_ONLY, Checkpoints, RecordStep
from border_cli.core.types import Metrics, State

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Scores:
    """Best and last score; owned by the learner's thread."""

    best: float = -math.inf
    best_opt_steps: int | None = None
    last: float | None = None
    last_opt_steps: int | None = None
    evaluations: int = 0
    in_a_row: int = 0  # newest evaluations that reached the threshold

    def add(self, score: float, opt_steps: int, threshold: float | None) -> bool:
        """Takes a score; whether it is strictly the best so far (a tie keeps the older)."""
        self.evaluations += 1
        self.last, self.last_opt_steps = score, opt_steps
        reached = threshold is not None and score >= threshold
        self.in_a_row = self.in_a_row + 1 if reached else 0
        if score > self.best:
            self.best, self.best_opt_steps = score, opt_steps
            return True
        return False

    def state_dict(self) -> State:
        """All of it; no best score is None."""
        return asdict(self) | {"best": self.best if math.isfinite(self.best) else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value)
        self.best = -math.inf if state["best"] is None else float(state["best"])

    def know_best(self, score: float, opt_steps: int) -> None:
        """There is a saved best model that is better than what was known."""
        if score > self.best:
            self.best, self.best_opt_steps = score, opt_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is under judgement, and what will be saved if it is the best."""

    step: RecordStep
    counters: Mapping[str, float]
    state: Mapping[str, Any] | None  # None: the agent as it is, because it waits for the verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is recorded of an evaluation, at the step of the weights that were judged."""

    step: RecordStep
    metrics: Metrics


class Evaluating:
    """Owned by the learner's thread. The best model saved is the one that was judged."""

    def __init__(
        self,
        judge: EvaluationRunner,
        *,
        agent: Agent,
        checkpoints: Checkpoints,
        threshold: float | None,
    ) -> None:
        self.judge = judge
        self._agent = agent
        self._checkpoints = checkpoints
        self._threshold = threshold
        self._candidate: Candidate | None = None
        self.scores = Scores()
        self.skipped = 0  # evaluations that fell due while another was under way

    @property
    def pending(self) -> bool:
        """Whether a verdict is to come."""
        return self._candidate is not None

    def submit(self, step: RecordStep, counters: Mapping[str, float]) -> None:
        """Has the agent judged as it is now; left out while another evaluation is under way."""
        if self._candidate is not None:
            self._skip(self._candidate.step, step)
            return
        state = self._agent.state_dict() if self.judge.in_background else None
        self._candidate = Candidate(step=step, counters=counters, state=state)
        self.judge.submit(self._agent.snapshot(env_steps=step.env_steps))

    def _skip(self, running: RecordStep, due: RecordStep) -> None:
        self.skipped += 1
        log.log(
            logging.WARNING if self.skipped == 1 else logging.INFO,
            "skipped the evaluation at update %d: the one of update %d is still running "
            "(try a larger trainer.eval_interval or fewer evaluator.num_episodes)",
            due.opt_steps, running.opt_steps,
        )  # fmt: skip

    def collect(self) -> Verdict | None:
        """The verdict once it is there."""
        evaluation = self.judge.collect()
        return self._take(evaluation) if evaluation is not None else None

    def wait(self) -> Verdict:
        """The verdict that is to come."""
        return self._take(self.judge.wait())

    @property
    def candidate_state(self) -> Mapping[str, Any] | None:
        """The agent that is being judged beside the learner, for a checkpoint."""
        return self._candidate.state if self._candidate is not None else None

    def state_dict(self) -> State:
        """What was judged, and where in the run the `candidate_state` stood.

        An evaluation in line is no candidate: a resumed run begins that one again.
        """
        candidate = self._candidate
        pending = candidate is not None and candidate.state is not None
        return {
            "scores": self.scores.state_dict(),
            "skipped": self.skipped,
            "step": asdict(candidate.step) if candidate and pending else None,
            "counters": dict(candidate.counters) if candidate and pending else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, but for the candidate."""
        self.scores.load_state_dict(state["scores"])
        self.skipped = int(state["skipped"])

    def resubmit(self, state: Mapping[str, Any], agent_state: Mapping[str, Any]) -> None:
        """Has the candidate of `state_dict` judged, whose agent was in `agent_state` then."""
        now = self._agent.state_dict()
        self._agent.load_state_dict(agent_state)
        try:
            self.submit(RecordStep(**state["step"]), state["counters"])
        finally:
            self._agent.load_state_dict(now)

    def _take(self, evaluation: Evaluation) -> Verdict:
        candidate, self._candidate = self._candidate, None
        assert candidate is not None
        best = self.scores.add(evaluation.score, candidate.step.opt_steps, self._threshold)
        log.info(
            "evaluation at update %d: %.10g%s",
            *(candidate.step.opt_steps, evaluation.score, " (new best)" if best else ""),
            extra=FILE_ONLY,
        )
        if best:
            state = candidate.state if candidate.state is not None else self._agent.state_dict()
            self._checkpoints.save_best(state, candidate.counters, evaluation)
        return Verdict(candidate.step, evaluation.metrics)
