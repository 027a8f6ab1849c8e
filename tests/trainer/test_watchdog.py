"""The watchdog reports the part that hangs, and no other part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from border_cli.core.interfaces import Evaluation, Policy
from border_cli.core.output import Progress
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.timing import MonotonicClock
from border_cli.errors import Interrupted, Stalled
from border_cli.trainer.watchdog import Watchdog
from tests.support.actor_managers import Built, start
from tests.support.fakes import CountingEnv, ListRecorder, ScriptedEvaluator
from tests.support.trainers import BuiltTrainer

TIMEOUT_S = 60.0


class Case:
    """A watchdog of three parts, checked once per second."""

    def __init__(self) -> None:
        self.learner = Heartbeat("learner")
        self.actor = Heartbeat("actor 0")
        self.evaluation = Heartbeat("evaluation", waiting_for="its turn")
        self.watchdog = Watchdog(
            [self.learner, self.evaluation, self.actor],
            timeout_s=TIMEOUT_S,
            stop=StopFlag(),
            on_hung_learner=lambda _: None,
        )
        self.look()

    def look(self) -> Stalled | None:
        return self.watchdog.check()

    def pass_s(self, seconds: int) -> Stalled | None:
        reports = [self.look() for _ in range(seconds)]
        assert not any(reports[:-1])
        return reports[-1]

    def blamed_parts(self, seconds: int) -> str | None:
        """Returns the parts that the first line of the report names, or None without a report."""
        stalled = self.pass_s(seconds)
        return str(stalled).splitlines()[0].partition("): ")[2] if stalled else None


@contextmanager
def blocked(heartbeat: Heartbeat) -> Iterator[None]:
    """Runs a thread of the part that blocks until the context exits."""
    entered, release = threading.Event(), threading.Event()

    def block() -> None:
        heartbeat.claim()
        entered.set()
        release.wait(30)  # the line that blocks

    thread = threading.Thread(target=block, name=heartbeat.name)
    thread.start()
    assert entered.wait(5)
    try:
        yield
    finally:
        release.set()
        thread.join()


def test_a_part_without_a_step_is_named_once_the_timeout_has_passed() -> None:
    case = Case()
    case.learner.beat()
    assert case.pass_s(30) is None
    case.learner.beat()
    assert case.pass_s(29) is None
    case.learner.beat()
    assert case.blamed_parts(1) == "actor 0"


def test_the_report_shows_the_line_that_blocks_first() -> None:
    case = Case()
    case.learner.waiting_for = "samples"
    with blocked(Heartbeat("somebody else")), blocked(case.actor):
        report = str(case.pass_s(60))
    assert report.startswith(
        "no step for 60 s (trainer.stall_timeout_s): actor 0\nthread actor 0:\n"
    )
    first, *others = report.split("\nthread ")[1:]
    assert "release.wait(30)  # the line that blocks" in first
    assert {"somebody else", "MainThread"} <= {section.partition(":")[0] for section in others}


def test_a_part_that_waits_for_another_is_never_blamed() -> None:
    case = Case()
    case.actor.waiting_for = "space in the channel"
    for _ in range(100):
        case.learner.beat()
        assert case.pass_s(59) is None


def test_a_wait_that_ends_starts_a_new_count() -> None:
    case = Case()
    with case.actor.waiting("space in the channel"):
        for _ in range(2):
            case.learner.beat()
            assert case.pass_s(50) is None
    case.learner.beat()
    assert case.pass_s(1) is None  # this check is the first one since the wait
    assert case.pass_s(59) is None
    case.learner.beat()
    assert case.blamed_parts(1) == "actor 0"


def test_when_all_wait_and_nothing_moves_all_are_named() -> None:
    case = Case()
    case.learner.waiting_for = "samples"
    for _ in range(10):  # while one part makes progress, none is named
        with case.actor.waiting("the rate limiter"):
            assert case.pass_s(59) is None
    case.actor.waiting_for = "the rate limiter"
    assert case.pass_s(60) is None
    text = "learner (waiting for samples), evaluation (waiting for its turn), actor 0 (waiting for "
    assert case.blamed_parts(1) == f"{text}the rate limiter)"


def test_an_evaluation_that_hangs_is_named_and_the_learner_that_waits_for_it_is_not() -> None:
    case = Case()
    case.actor.waiting_for = "space in the channel"
    with case.learner.waiting("the evaluation"), case.evaluation.working():
        assert case.blamed_parts(61) == "evaluation"


def test_an_evaluation_whose_turn_it_is_not_is_never_named() -> None:
    case = Case()
    for _ in range(5):
        case.learner.beat()
        case.actor.beat()
        assert case.pass_s(59) is None
    with case.evaluation.working():
        case.learner.beat()
        case.actor.beat()
        assert case.look() is None  # idle time does not count


# With real threads


def watch(
    built: BuiltTrainer,
    on_hung_learner: Callable[[Stalled], None],
    *more: Heartbeat,
    timeout_s: float = 0.2,
    grace_s: float = 5.0,
) -> Watchdog:
    return Watchdog(
        [built.trainer.heartbeat, *more, *built.manager.heartbeats()],
        timeout_s=timeout_s,
        stop=built.stop,
        on_hung_learner=on_hung_learner,
        learner_grace_s=grace_s,
    )


def never(stalled: Stalled) -> None:
    raise AssertionError(f"the learner does not hang: {stalled}")


class BlockingEvaluator(ScriptedEvaluator):
    """Blocks every evaluation until it is released."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        super().__init__()
        self.release = threading.Event()
        self.heartbeat = heartbeat

    def evaluate(self, policy: Policy) -> Evaluation:
        with self.heartbeat.working():
            self.release.wait(60)  # an evaluation without an end
        return super().evaluate(policy)


def test_a_learner_that_hangs_is_reported_to_its_callback() -> None:
    heartbeat = Heartbeat("evaluation", waiting_for="its turn")
    evaluator = BlockingEvaluator(heartbeat)
    hung: list[Stalled] = []

    def end_it(stalled: Stalled) -> None:
        hung.append(stalled)
        evaluator.release.set()

    built = BuiltTrainer(
        "async", "thread", clock=MonotonicClock(), evaluator=evaluator, eval_interval=10,
        max_opt_steps=10_000,
    )  # fmt: skip
    with pytest.raises(Stalled, match="evaluation"), watch(built, end_it, heartbeat, grace_s=0.3):
        built.train()
    assert len(hung) == 1
    assert "self.release.wait(60)  # an evaluation without an end" in str(hung[0])


def test_a_learner_that_hangs_on_its_way_out_is_reported_too() -> None:
    stop, release, reported = StopFlag(), threading.Event(), threading.Event()
    part = Heartbeat("actor 0")

    def end_it(_: Stalled) -> None:
        reported.set()
        release.set()

    watchdog = Watchdog(
        [part], timeout_s=0.1, stop=stop, on_hung_learner=end_it,
        learner_grace_s=0.1, way_out_s=0.1,
    )  # fmt: skip
    stop.request(Interrupted(2))
    with watchdog:
        with pytest.raises(Interrupted, match="SIGINT"):
            stop.check()
        assert release.wait(10)  # hangs while it stops the actors
    assert reported.is_set()


def test_a_run_that_moves_is_left_alone_however_rarely_it_evaluates() -> None:
    heartbeat = Heartbeat("evaluation", waiting_for="its turn")
    built = BuiltTrainer(
        "async", "thread", clock=MonotonicClock(), eval_interval=0, max_opt_steps=None,
        max_time_s=0.5,
    )  # fmt: skip
    with watch(built, never, heartbeat, timeout_s=0.2):
        built.train()
    assert built.trainer.counters.opt_steps > 0


def test_an_evaluation_after_the_actors_have_ended_may_last() -> None:
    built = Built("thread", num_actors=2)
    evaluation = Heartbeat("evaluation", waiting_for="its turn")
    watchdog = Watchdog(
        [evaluation, *built.manager.heartbeats()], timeout_s=TIMEOUT_S, stop=StopFlag(),
        on_hung_learner=never,
    )  # fmt: skip
    with built.manager as manager:
        start(manager, 10)
        manager.stop()
        with evaluation.working():
            for _ in range(5):
                evaluation.beat()
                assert not any(watchdog.check() for _ in range(59))


def test_a_learner_that_receives_nothing_makes_no_step() -> None:
    # otherwise a deadlock would never be found: the learner checks several times per second
    release, looks = threading.Event(), []

    class Watching(ListRecorder):
        def show(self, progress: Progress) -> None:  # noqa: ARG002 - only the call counts
            learner = built.trainer.heartbeat
            if not release.is_set():
                looks.append((learner.beats, learner.waiting_for))
            if len(looks) == 3:
                release.set()

    built = BuiltTrainer(
        "async", "thread", clock=MonotonicClock(), recorder=Watching(),
        make_env=lambda _: CountingEnv(on_step=lambda _: assert_true(release.wait(30))),
    )  # fmt: skip
    built.train()
    assert looks == [(looks[0][0], "samples")] * 3


def assert_true(value: bool) -> None:
    assert value
