"""Evaluation beside the learner: what is recorded, and what is kept as the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fakes import FakeAgent, FakeClock, MemoryCheckpoints
from trainers import BuiltTrainer

from border_cli.core.interfaces import Evaluation, EvaluationRunner
from border_cli.core.stop import Heartbeat, Pulse
from border_cli.core.types import Snapshot


class SlowJudge(EvaluationRunner):
    """Gives its verdict at the `looks`-th look; the score is a function of the weights."""

    in_background = True

    def __init__(self, looks: int, score: Mapping[int, float]) -> None:
        self.submitted: list[int] = []
        self.opened = 0
        self._looks = looks
        self._score = score
        self._left = 0
        self._weight: int | None = None

    @property
    def pulse(self) -> Pulse:
        return Heartbeat("evaluation")

    def submit(self, snapshot: Snapshot) -> None:
        assert not self.busy
        self._weight, self._left = int(snapshot.arrays["w"][0]), self._looks
        self.submitted.append(self._weight)

    @property
    def busy(self) -> bool:
        return self._weight is not None

    def collect(self) -> Evaluation | None:
        self._left -= 1
        if self._weight is None or self._left > 0:
            return None
        return self.wait()

    def wait(self) -> Evaluation:
        assert self._weight is not None
        score = self._score.get(self._weight, 0.0)
        self._weight = None
        return Evaluation(
            score=score, returns=(score,), lengths=(1,), metrics={"eval/return": score}
        )


class RememberedStates(MemoryCheckpoints):
    """Remembers which weights were saved as the best, and with which counters."""

    def __init__(self) -> None:
        super().__init__()
        self.best_states: list[tuple[int, int]] = []

    def save_best(
        self, state: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        del evaluation
        self.best_states.append((state["opt_steps"], int(counters["opt_steps"])))


def built(judge: SlowJudge, **settings: Any) -> BuiltTrainer:
    return BuiltTrainer(
        judge=judge,
        agent=FakeAgent(),
        clock=FakeClock(),
        checkpoints=RememberedStates(),
        eval_interval=20,
        max_opt_steps=100,
        **settings,
    )


def test_a_verdict_is_recorded_at_the_step_of_the_weights_that_were_judged() -> None:
    judge = SlowJudge(looks=2, score={20: 5.0, 40: 7.0})
    made = built(judge)
    made.train()
    assert made.recorder.of("eval/return")[:2] == [(20, 5.0), (40, 7.0)]
    # The row was written 10 updates later, behind rows of later steps or between them.
    assert made.post_step.scores.best == 7.0
    assert made.post_step.scores.best_opt_steps == 40


def test_the_best_model_saved_is_exactly_the_one_that_was_judged() -> None:
    judge = SlowJudge(looks=2, score={40: 7.0, 80: 9.0})
    made = built(judge)
    made.train()
    assert isinstance(made.checkpoints, RememberedStates)
    # the first verdict is the best of one, whatever it is
    assert made.checkpoints.best_states == [(20, 20), (40, 40), (80, 80)]


def test_an_evaluation_that_falls_due_while_another_is_under_way_is_left_out_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    judge = SlowJudge(looks=5, score={})
    made = built(judge)
    made.train()
    # looks at 20, 30, 40, 50, 60: the verdict on 20 arrives at 60, where the next one has just
    # been left out
    assert judge.submitted == [20, 80, 100]
    assert made.post_step.evaluating.skipped == 3
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert (
        "skipped the evaluation at update 40: the one of update 20 is still running"
        in warnings[0].getMessage()
    )


def test_a_run_that_reached_its_end_waits_for_the_verdict_and_judges_its_last_weights() -> None:
    judge = SlowJudge(looks=1_000, score={20: 1.0, 100: 2.0})
    made = built(judge)
    made.train()
    assert judge.submitted == [20, 100]
    finals = [
        (step.opt_steps, row["eval/return"], final)
        for step, row, final in made.recorder.rows
        if "eval/return" in row
    ]
    assert finals == [(20, 1.0, False), (100, 2.0, True)]


def test_a_late_verdict_ends_the_run_that_was_to_stop_at_its_score() -> None:
    judge = SlowJudge(looks=2, score={20: 9.0})
    made = built(judge, stop_at_score=8.0, stop_evals=1)
    made.train()
    assert made.trainer.ended_by == "stop_at_score"
    assert made.post_step.counters.opt_steps == 30  # ten updates after the snapshot
