"""Evaluation in the background: records, best scores, limits of episodes, and resumes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from border_cli.core.interfaces import Evaluation, EvaluationRunner
from border_cli.core.output import Resumption
from border_cli.core.stop import Heartbeat, MonitoredPart
from border_cli.core.types import Snapshot
from border_cli.trainer.evaluating import EpisodeLimit, Scores
from tests.support.fakes import FakeAgent, FakeClock, MemoryCheckpoints
from tests.support.trainers import BuiltTrainer


class SlowRunner(EvaluationRunner):
    """Returns its result at the `looks`-th call of `collect`. The score depends on the weights."""

    in_background = True

    def __init__(self, looks: int, score: Mapping[int, float]) -> None:
        self.submitted: list[int] = []
        self.opened = 0
        self._looks = looks
        self._score = score
        self._left = 0
        self._weight: int | None = None

    @property
    def pulse(self) -> MonitoredPart:
        return Heartbeat("evaluation")

    def submit(self, snapshot: Snapshot) -> None:
        assert self._weight is None
        self._weight, self._left = int(snapshot.arrays["w"][0]), self._looks
        self.submitted.append(self._weight)

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
    """Records which weights were saved as the best, and with which counters."""

    def __init__(self) -> None:
        super().__init__()
        self.best_states: list[tuple[int, int]] = []

    def save_best(
        self, state: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        del evaluation
        self.best_states.append((state["opt_steps"], int(counters["opt_steps"])))


def build(runner: SlowRunner, **settings: Any) -> BuiltTrainer:
    settings = {"eval_interval": 20, "max_opt_steps": 100} | settings
    return BuiltTrainer(
        runner=runner,
        agent=FakeAgent(),
        clock=FakeClock(),
        checkpoints=RememberedStates(),
        **settings,
    )


def test_a_result_is_recorded_at_the_step_of_the_weights_that_were_evaluated() -> None:
    runner = SlowRunner(looks=2, score={20: 5.0, 40: 7.0})
    built = build(runner)
    built.train()
    assert built.recorder.of("eval/return")[:2] == [(20, 5.0), (40, 7.0)]
    # The row was written 10 updates later, possibly after rows of later steps.
    assert built.trainer.scores.best == 7.0
    assert built.trainer.scores.best_opt_steps == 40


def test_the_best_model_saved_is_exactly_the_one_that_was_evaluated() -> None:
    runner = SlowRunner(looks=2, score={40: 7.0, 80: 9.0})
    built = build(runner)
    built.train()
    assert isinstance(built.checkpoints, RememberedStates)
    # the first result is always the best so far
    assert built.checkpoints.best_states == [(20, 20), (40, 40), (80, 80)]


def test_of_equal_scores_the_first_stays_the_best() -> None:
    scores = Scores()
    added = [scores.add(score, step, None) for step, score in enumerate((1.0, 2.0, 2.0, 1.0))]
    assert added == [True, True, False, False]
    assert (scores.best, scores.best_opt_steps) == (2.0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_counts_for_nothing(bad: float) -> None:
    scores = Scores()
    assert scores.add(1.0, 10, 1.0)
    for opt_steps in (20, 30):
        assert not scores.add(bad, opt_steps, 1.0)
    assert (scores.best, scores.last, scores.evaluations) == (1.0, 1.0, 3)
    assert (scores.in_a_row, scores.without_best) == (1, 0)
    assert scores.last_opt_steps == 30
    assert scores.add(2.0, 40, 1.0)


def test_the_first_ignored_evaluation_is_logged_with_its_episode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = build(SlowRunner(1, {20: math.nan, 40: math.inf, 60: 3.0}), max_opt_steps=80)
    trainer.trainer.train()
    messages = [
        record.message for record in caplog.records if "ignored the evaluation" in record.message
    ]
    reason = "episode 0 ended after 1 steps with nan"
    assert messages == [f"ignored the evaluation at update 20: {reason}"]
    assert trainer.trainer.stats().best_score == 3.0


def test_an_evaluation_that_falls_due_while_another_is_under_way_is_left_out_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = SlowRunner(looks=5, score={})
    built = build(runner)
    built.train()
    # `collect` is called at 20, 30, 40, 50 and 60. The result of 20 arrives at 60, just after the
    # evaluation due there was skipped.
    assert runner.submitted == [20, 80, 100]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3
    assert (
        "skipped the evaluation at update 40: the one of update 20 is still running"
        in warnings[0].getMessage()
    )


def test_a_run_that_reached_its_end_waits_for_the_result_and_evaluates_its_last_weights() -> None:
    runner = SlowRunner(looks=1_000, score={20: 1.0, 100: 2.0})
    built = build(runner)
    built.train()
    assert runner.submitted == [20, 100]
    finals = [
        (step.opt_steps, row["eval/return"], final)
        for step, row, final in built.recorder.rows
        if "eval/return" in row
    ]
    assert finals == [(20, 1.0, False), (100, 2.0, True)]


def test_a_late_result_ends_the_run_that_was_to_stop_at_its_score() -> None:
    runner = SlowRunner(looks=2, score={20: 9.0})
    built = build(runner, stop_at_score=8.0, stop_evals=1)
    built.train()
    assert built.trainer.ended_by == "stop_at_score"
    assert built.trainer.counters.opt_steps == 30  # 10 updates after the snapshot


@pytest.mark.parametrize(
    ("longest", "env_steps", "steps"),
    [(100, 9_000, 500), (7, 9_000, 200), (3_000, 9_000, 10_000), (0, 1_001, 2_505), (0, 0, 200)],
)
def test_the_limit_follows_the_longest_training_episode_or_the_running_ones(
    longest: int, env_steps: int, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    decided: list[int] = []
    limit = EpisodeLimit(needed=True, num_envs=2, on_decided=decided.append)
    for _ in range(2):
        limit.decide(longest, env_steps)
        longest += 1_000  # only the first evaluation counts
    assert (limit.steps, decided) == (steps, [steps])
    messages = [
        record.message
        for record in caplog.records
        if "evaluator.max_episode_steps" in record.message
    ]
    assert len(messages) == 1
    assert f"{steps:,} steps" in messages[0]


def test_no_limit_is_decided_where_none_is_needed() -> None:
    limit = EpisodeLimit(needed=False)
    limit.decide(100, 100)
    assert limit.steps is None


def test_all_evaluations_of_a_run_have_the_limit_of_the_first_also_after_a_resume() -> None:
    class Limited(SlowRunner):
        limits: ClassVar[list[int | None]] = []

        def submit(self, snapshot: Snapshot) -> None:
            self.limits.append(snapshot.episode_limit)
            super().submit(snapshot)

    def make(**settings: Any) -> BuiltTrainer:
        limit = EpisodeLimit(needed=True, num_envs=2)
        return build(Limited(looks=1, score={}), episode_limit=limit, **settings)

    first = make(max_opt_steps=40)
    first.train()
    saved = first.checkpoints.states[-1]
    assert len(set(Limited.limits)) == 1
    second = make(max_opt_steps=60)
    second.trainer.resume(
        Resumption(
            counters=saved.counters,
            run={**saved.run, "evaluating": {**saved.run["evaluating"], "episode_limit": 777}},
            agent=saved.agent,
            load_rows=None,
        )
    )
    second.train()
    assert Limited.limits[-1] == 777


def test_a_pending_evaluation_is_made_with_the_resumed_weights() -> None:
    """It is recorded at the update of the checkpoint. If none was pending, none runs."""
    for eval_interval, submitted in ((20, [30, 100]), (0, [100])):
        first = build(
            SlowRunner(looks=1_000, score={}), eval_interval=eval_interval, max_opt_steps=30
        )
        first.train()
        saved = first.checkpoints.states[-1]
        runner = SlowRunner(looks=1_000, score={})
        second = build(runner, eval_interval=0)
        second.trainer.resume(
            Resumption(counters=saved.counters, run=saved.run, agent=saved.agent, load_rows=None)
        )
        second.train()
        assert runner.submitted == submitted
