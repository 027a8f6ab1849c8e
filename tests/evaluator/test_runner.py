"""Evaluation in the learner's thread and in a process, and confirmation of high scores."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from border_cli.core.interfaces import Evaluation, Evaluator, Policy
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.errors import Interrupted, RunFailed
from border_cli.evaluator.background_runner import SETTING
from border_cli.evaluator.runner import Confirmation, InlineEvaluationRunner
from border_cli.system.start import pack
from tests.support.evaluations import Weighed, background_runner, weighing


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script"


def test_a_snapshot_is_evaluated_elsewhere_and_the_learner_goes_on(script: Path) -> None:
    with closing(background_runner(script, "wait\n")) as runner:
        runner.submit(weighing(3.5))
        assert runner.collect() is None  # the evaluation waits, the learner does not
        script.with_name("go").touch()
        assert runner.wait().score == 3.5
        assert runner.waiting_for == "its turn"  # the watchdog expects no steps


def test_a_score_that_may_end_the_run_is_confirmed_elsewhere_too(script: Path) -> None:
    with closing(background_runner(script, confirmation=Confirmation(3.0, 2))) as runner:
        runner.submit(weighing(4.0))
        assert runner.wait().returns == (4.0, 2.0, 2.0)  # the mean after the second round is 3
        runner.submit(weighing(2.9))
        assert runner.wait().returns == (2.9,)


def test_one_process_evaluates_many_snapshots_and_closes_its_environments(script: Path) -> None:
    runner = background_runner(script)
    runner.open()
    assert runner._child is not None
    pid = runner._child.pid
    for weight in range(5):
        runner.submit(weighing(float(weight)))
        assert runner.wait().score == weight
    assert runner._child.pid == pid
    runner.close()
    assert script.with_name("closed").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_dies_is_replaced_and_the_same_snapshot_evaluated_again(
    script: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(background_runner(script, "die\ndie\n")) as runner:
        runner.submit(weighing(7.0))
        assert runner.wait().score == 7.0
    assert caplog.text.count("killed by SIGKILL") == 2


def test_a_snapshot_that_no_process_survives_ends_the_run(script: Path) -> None:
    with closing(background_runner(script, "die\n" * 3)) as runner:
        runner.submit(weighing(1.0))
        with pytest.raises(RunFailed, match="the evaluation failed: its process was killed by"):
            runner.wait()


def test_what_an_evaluator_raises_ends_the_run_at_once_with_its_traceback(script: Path) -> None:
    with closing(background_runner(script, "raise\n")) as runner:
        runner.submit(weighing(1.0))
        with pytest.raises(RunFailed, match=r"(?s)Traceback.*ValueError: the evaluator is drunk"):
            runner.wait()


def test_a_process_that_hangs_is_logged_killed_and_replaced(
    script: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(background_runner(script, "hang\n")) as runner:
        assert runner.waiting_for == "its turn"
        runner.submit(weighing(2.0))
        while runner.beats < 3:  # submitted, process ready, evaluation started
            assert runner.collect() is None
        beats = runner.beats
        assert runner.restart()
        assert runner.wait().score == 2.0
        assert runner.beats > beats  # the watchdog notices progress
    assert "_obey" in caplog.text  # the stack of the process
    assert "killed after making no step for trainer.stall_timeout_s" in caplog.text


def test_no_step_is_expected_of_a_process_that_still_imports(script: Path) -> None:
    """Holds for the first process and for its replacement, however short the timeout is."""
    with closing(background_runner(script, "wait\n")) as runner:
        runner.submit(weighing(2.0))
        assert runner.waiting_for == "its process to start"  # it has not reported yet
        while runner.waiting_for is not None:
            assert runner.collect() is None
        assert runner.restart()
        while runner.waiting_for is None:
            assert runner.collect() is None  # until its death is noticed and it is replaced
        assert runner.waiting_for == "its process to start"
        assert runner.wait().score == 2.0


def test_its_log_arrives_in_ours(script: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(background_runner(script, "log\n")) as runner:
        runner.submit(weighing(1.0))
        runner.wait()
    record = next(entry for entry in caplog.records if entry.name == "the.evaluator")
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "evaluation: a word from the evaluator"


def test_a_learner_that_waits_hears_the_stop_flag(script: Path) -> None:
    stop = StopFlag()
    with closing(background_runner(script, "wait\n", stop)) as runner:
        runner.submit(weighing(1.0))
        stop.request(Interrupted(15))
        with pytest.raises(Interrupted, match="SIGTERM"):
            runner.wait()


def test_closing_in_the_middle_of_an_evaluation_leaves_no_process(script: Path) -> None:
    runner = background_runner(script, "hang\n")
    runner.submit(weighing(1.0))
    assert runner._child is not None
    pid = runner._child.pid
    runner.close()
    runner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_parts_that_cannot_be_sent_are_refused_with_the_setting() -> None:
    with pytest.raises(
        RunFailed, match=r"evaluator\.background=true needs parts that can be pickled"
    ):
        pack(SETTING, [], lambda: None)


class Lucky(Evaluator):
    """Returns the listed scores, one episode per round."""

    def __init__(self, *rounds: float) -> None:
        self._rounds = rounds
        self.weights: list[float] = []

    def evaluate(self, policy: Policy) -> Evaluation:
        return self._of(policy, 1)

    def extend(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        return self._of(policy, len(evaluation.returns) + 1)

    def _of(self, policy: Policy, count: int) -> Evaluation:
        assert isinstance(policy, Weighed)
        self.weights.append(policy.weight)
        returns = self._rounds[:count]
        return Evaluation(
            score=float(np.mean(returns)), returns=returns, lengths=(1,) * count, metrics={}
        )

    def close(self) -> None:
        raise AssertionError("an evaluator is closed by its creator")


@pytest.mark.parametrize(
    ("threshold", "rounds", "played", "score"),
    [
        (500.0, 3, (500.0, 500.0, 440.0), 480.0),  # the mean drops below the threshold
        (450.0, 3, (500.0, 500.0, 440.0, 400.0), 460.0),  # all rounds stay above the threshold
        (500.1, 3, (500.0,), 500.0),
        (None, 3, (500.0,), 500.0),
    ],
)
def test_a_score_that_reaches_the_threshold_is_of_more_episodes_as_long_as_it_does(
    threshold: float | None, rounds: int, played: tuple[float, ...], score: float
) -> None:
    evaluator = Lucky(500.0, 500.0, 440.0, 400.0)
    runner = InlineEvaluationRunner(
        evaluator, Weighed, Heartbeat("learner"), Confirmation(threshold, rounds)
    )
    runner.submit(weighing(3.0))
    evaluation = runner.wait()
    assert (evaluation.returns, evaluation.score) == (played, score)
    assert evaluator.weights == [3.0] * len(played)


def test_the_learners_thread_is_called_between_the_steps_of_an_inline_evaluation() -> None:
    heartbeat, calls = Heartbeat("evaluation"), list[int]()

    class Stepping(Lucky):
        def evaluate(self, policy: Policy) -> Evaluation:
            for _ in range(3):
                heartbeat.beat()
            return super().evaluate(policy)

    runner = InlineEvaluationRunner(Stepping(9.0), Weighed, heartbeat)
    runner.on_step(lambda: calls.append(heartbeat.beats))
    runner.submit(weighing(1.0))
    assert calls == [1, 2, 3]


def test_a_snapshot_brings_the_limit_of_its_episodes() -> None:
    class Limited(Lucky):
        limits: ClassVar[list[int]] = []

        def limit_episodes(self, steps: int) -> None:
            self.limits.append(steps)

    runner = InlineEvaluationRunner(Limited(9.0), Weighed, Heartbeat("evaluation"))
    for limit in (None, 300):
        runner.submit(replace(weighing(1.0), episode_limit=limit))
    assert Limited.limits == [300]


def test_a_score_is_final_if_the_evaluator_has_no_further_episodes() -> None:
    class Certain(Lucky):
        extend = Evaluator.extend

    runner = InlineEvaluationRunner(
        Certain(9.0), Weighed, Heartbeat("learner"), Confirmation(9.0, 2)
    )
    runner.submit(weighing(1.0))
    assert runner.wait().returns == (9.0,)
