"""Leases, with a fake transport and simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Message
from border_cli.errors import ActorCrashed, BadStep, RunFailed
from border_cli.ray.calls import ActorReport, ReportKind, Transport
from border_cli.ray.leases import (
    STARTS_S,
    Leases,
    LeaseSettings,
    Stage,
    Times,
)
from border_cli.ray.remote_actor import CallResult

STALL_S = 60.0


@dataclass
class Call:
    actor_id: int
    incarnation: int
    lease: int
    samples: int
    version: int | None


@dataclass
class FakeCluster(Transport):
    """Records all requests; the test decides what happens to them, and when."""

    started: list[tuple[int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)  # in flight
    closing: list[int] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    alive: dict[int, int] = field(default_factory=dict)  # actor id -> incarnation

    def publish(self, weights: NDArray[np.uint8]) -> None:
        del weights

    def start(self, actor_id: int, incarnation: int) -> None:
        assert actor_id not in self.alive, "two processes of one actor"
        self.started.append((actor_id, incarnation))
        self.alive[actor_id] = incarnation

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        self.calls.append(Call(actor_id, self.alive[actor_id], lease, samples, version))

    def close(self, actor_id: int) -> None:
        self.closing.append(actor_id)

    def kill(self, actor_id: int) -> None:
        self.killed.append(actor_id)
        del self.alive[actor_id]


def message(actor_id: int, rows: int) -> Message:
    """Returns a message with a number of rows but no content."""
    return Message(actor_id=actor_id, opt_steps=0, env_steps=rows, parts=[], rows=rows, episodes=())


class Run:
    """Leases, their fake cluster, and the samples delivered and lost."""

    def __init__(self, num_actors: int = 2, *, wanted: int | None = None, **settings: Any) -> None:
        self.cluster = FakeCluster()
        self.now_s = 0.0
        self.delivered: list[tuple[int, int]] = []  # actor id, rows
        self.times: list[Times] = []
        self.lost: list[tuple[int, int]] = []
        limits = {"paced_samples": 10, "most_samples": 1_000, "max_in_flight": 2, "max_restarts": 2}
        self.leases = Leases(
            LeaseSettings(num_actors=num_actors, stall_timeout_s=STALL_S, **limits | settings),
            self.cluster,
            on_delivered=self._on_delivered,
            on_lost=lambda actor_id, samples: self.lost.append((actor_id, samples)),
        )
        self.leases.space = 1_000_000
        self.leases.version = 1
        self.leases.begin(0.0, num_actors if wanted is None else wanted)

    def _on_delivered(self, actor_id: int, answer: CallResult, times: Times) -> None:
        self.delivered.append((actor_id, answer.rows))
        self.times.append(times)

    def permit(self, samples: float, *, last: bool = False, urgent: bool = False) -> None:
        self.leases.permit(samples, last=last, urgent=urgent)
        self.pump()

    def pump(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.leases.pump(self.now_s)

    def report(self, kind: ReportKind, actor_id: int, value: object = None, lease: int = 0) -> None:
        incarnation = self.leases.actors[actor_id].incarnation
        self.leases.handle_report(
            ActorReport(kind, actor_id, incarnation, value, lease), self.now_s
        )

    def build(self, *actors: int) -> None:
        for actor_id in actors:
            self.report(ReportKind.PLACED, actor_id, "host, process 7")
            self.report(ReportKind.BUILT, actor_id, CallResult())
        self.pump()

    def answer(self, call: Call, *, acted_s: float = 0.001, **answer: Any) -> None:
        """Makes a call return; `rows` may differ from the samples requested."""
        self.cluster.calls.remove(call)
        rows = answer.pop("rows", call.samples)
        returned = CallResult(message=message(call.actor_id, rows), acted_s=acted_s, **answer)
        report = ActorReport(
            ReportKind.RETURNED, call.actor_id, call.incarnation, returned, call.lease
        )
        self.leases.handle_report(report, self.now_s)
        self.pump()

    def grow(self, actor_id: int, samples: int) -> None:
        """Sets an actor's lease size, as if a few fast calls had increased it."""
        self.leases.actors[actor_id].size = samples

    @property
    def in_flight(self) -> list[int]:
        return [call.samples for call in self.cluster.calls]


def test_no_actor_is_called_before_it_is_built_and_there_are_weights_and_a_permission() -> None:
    run = Run()
    run.leases.version = 0
    run.permit(100)
    assert run.cluster.calls == []
    run.build(0)
    assert run.cluster.calls == []
    run.leases.version = 1
    run.pump()
    assert {call.actor_id for call in run.cluster.calls} == {0}


def test_weights_go_with_a_call_only_where_the_actor_does_not_have_them() -> None:
    run = Run(1)
    run.permit(math.inf)
    run.build(0)
    assert [call.version for call in run.cluster.calls] == [1, None]
    run.answer(run.cluster.calls[0])
    assert run.cluster.calls[-1].version is None
    run.leases.version = 4
    run.answer(run.cluster.calls[0])
    assert run.cluster.calls[-1].version == 4


def test_the_first_call_is_one_sample_and_calls_grow_to_their_intended_duration() -> None:
    run = Run(1, max_in_flight=1)
    run.permit(math.inf)
    run.build(0)
    sizes = []
    for _ in range(8):
        sizes += run.in_flight
        run.answer(run.cluster.calls[0], acted_s=0.0002 * run.in_flight[0])
    assert sizes == [1, 4, 16, 64, 166, 166, 166, 166]  # 166 * 0.2 ms = 1/30 s


def test_what_is_left_at_the_end_is_leased_however_little_it_is() -> None:
    run = Run(2)
    run.build(0, 1)
    run.grow(0, 50)
    run.grow(1, 50)
    run.permit(7)
    assert run.in_flight == []
    run.permit(7, last=True)
    assert run.in_flight == [4, 3]


def test_a_learner_that_waits_gets_little_only_if_nothing_is_on_its_way() -> None:
    run = Run(2)
    run.build(0, 1)
    run.grow(0, 50)
    run.grow(1, 50)
    run.permit(6, urgent=True)
    assert run.in_flight == [3, 3]
    run.permit(12, urgent=True)
    assert run.in_flight == [3, 3]


def test_answers_are_delivered_in_the_order_of_the_calls() -> None:
    run = Run(1)
    run.permit(math.inf)
    run.build(0)
    first, second = run.cluster.calls
    run.answer(second, rows=22)
    assert run.delivered == []
    run.answer(first, rows=11)
    assert run.delivered == [(0, 11), (0, 22)]


def test_at_the_deadline_the_lease_is_free_the_actor_replaced_and_late_rows_ignored() -> None:
    run = Run(2)
    run.build(0, 1)
    run.grow(0, 10)
    run.grow(1, 10)
    run.permit(40)
    late = [call for call in run.cluster.calls if call.actor_id == 0]
    in_time = [call for call in run.cluster.calls if call.actor_id == 1]
    run.pump(STALL_S - 1)
    for call in in_time:
        run.answer(call)
    assert run.leases.granted == 40
    run.pump(2.0)
    assert run.cluster.killed == [0]
    assert run.lost == [(0, 10)]  # only the first call may have collected samples
    run.pump(1.0)
    assert run.cluster.started[-1] == (0, 1)
    for call in late:
        report = ActorReport(
            ReportKind.RETURNED, 0, 0, CallResult(message=message(0, 10)), call.lease
        )
        run.leases.handle_report(report, run.now_s)
    assert run.delivered == [(1, 10), (1, 10)]
    assert run.lost == [(0, 10)]


def test_a_process_dies_once_however_many_calls_say_so() -> None:
    run = Run(1)
    run.permit(math.inf)
    run.build(0)
    run.report(ReportKind.DIED, 0, "killed by SIGKILL")
    run.report(ReportKind.DIED, 0, "killed by SIGKILL")
    run.pump(1.0)
    assert run.leases.actors[0].restarts.count == 1
    assert run.lost == [(0, 1)]


def traceback_of(line: int) -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "/env.py", line {line}, in step\n    raise ValueError\n'
        f"ValueError: from line {line}\n"
    )


def test_one_actor_that_is_given_up_does_not_end_the_run_and_the_last_one_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(2, max_restarts=5)
    run.permit(math.inf)

    def fail(actor_id: int) -> None:
        for _ in range(2):
            run.report(ReportKind.PLACED, actor_id, "host, process 7")
            run.report(ReportKind.BUILT, actor_id, CallResult(failure=traceback_of(actor_id)))
            run.pump(6.0)

    fail(0)
    assert run.leases.actors[0].stage == Stage.ENDED
    assert "host, process 7" in caplog.text
    assert "the run continues with 1 actor" in caplog.text
    with pytest.raises(ActorCrashed, match=r"actor 1.*failed the same way"):
        fail(1)


def test_a_step_that_does_not_fit_ends_the_run() -> None:
    run = Run(1)
    run.permit(math.inf)
    run.build(0)
    with pytest.raises(BadStep, match="the reward"):
        run.answer(run.cluster.calls[0], refusal=BadStep("the reward is a string"))


def test_a_first_observation_that_does_not_fit_ends_the_run() -> None:
    run = Run(1)
    run.report(ReportKind.PLACED, 0, "host, process 7")
    answer = CallResult(refusal=BadStep("the observation is a string"))
    with pytest.raises(BadStep, match="the observation"):
        run.report(ReportKind.BUILT, 0, answer)


def test_an_actor_that_is_built_for_too_long_is_replaced() -> None:
    run = Run(2)
    run.build(1)
    run.report(ReportKind.PLACED, 0, "host, process 7")
    run.pump(STALL_S + 1)
    assert run.leases.actors[0].stage == Stage.PAUSED
    run.pump(1.0)
    assert run.cluster.started[-1] == (0, 1)


def test_while_one_acts_another_may_wait_for_a_place_for_as_long_as_it_takes() -> None:
    run = Run(2)
    run.build(1)
    for _ in range(10):
        run.pump(STARTS_S)
    assert run.cluster.started == [(0, 0), (1, 0)]


def test_without_any_actor_for_too_long_the_run_ends_with_the_last_reason() -> None:
    run = Run(1)
    run.build(0)
    run.pump(1.0)
    run.report(ReportKind.DIED, 0, "the node died")
    run.pump(1.0)
    with pytest.raises(RunFailed, match=r"no actor could be started.*the node died"):
        run.pump(STARTS_S + 1)


def test_at_the_end_calls_return_environments_close_and_processes_end() -> None:
    run = Run(2)
    run.permit(math.inf)
    run.build(0)
    run.leases.close(run.now_s)
    assert run.cluster.killed == [1]  # it was never built
    assert not run.leases.drained
    for call in list(run.cluster.calls):
        run.answer(call)
    assert run.leases.drained
    assert run.cluster.calls == []
    assert run.cluster.closing == [0]
    assert not run.leases.over
    run.report(ReportKind.CLOSED, 0)
    assert run.leases.over
    assert run.cluster.alive == {}


def test_what_does_not_return_at_the_end_is_killed_and_counted() -> None:
    run = Run(1)
    run.permit(math.inf)
    run.build(0)
    run.leases.close(run.now_s)
    assert run.leases.kill(run.now_s) == [0]
    assert run.lost == [(0, 1)]
    assert run.leases.over
    assert run.leases.drained


@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_keep_the_budget_count_every_sample_once_and_go_on(seed: int) -> None:
    """Calls return in any order, late, never, or with too few or many rows; processes may die."""
    rng = np.random.default_rng(seed)
    num_actors, permitted, issued = 4, 0.0, 0
    run = Run(num_actors, max_restarts=1_000, max_in_flight=int(rng.integers(1, 4)))
    events: list[Callable[[], None]] = []

    def place() -> None:
        for actor in run.leases.actors:
            if actor.stage == Stage.STARTING and rng.random() < 0.7:
                run.build(actor.actor_id)

    def finish() -> None:
        calls = run.cluster.calls
        if calls:
            call = calls[int(rng.integers(len(calls)))]
            short = int(rng.integers(call.samples + 1))
            rows = [call.samples, call.samples, call.samples + 3, short][int(rng.integers(4))]
            run.answer(call, rows=rows, acted_s=float(rng.exponential(0.01)))

    def die() -> None:
        actor_id = int(rng.integers(num_actors))
        if actor_id in run.cluster.alive and rng.random() < 0.2:
            run.report(ReportKind.DIED, actor_id, "killed by SIGKILL")

    def wait() -> None:
        run.pump(float(rng.exponential(8.0)))

    def permit() -> None:
        nonlocal permitted
        permitted += int(rng.integers(40))
        run.permit(permitted, urgent=bool(rng.random() < 0.3))

    events += [place, finish, finish, finish, die, wait, permit]
    for _ in range(400):
        events[int(rng.integers(len(events)))]()
        total = sum(rows for _, rows in run.delivered)
        assert run.leases.received == total  # no sample counts twice
        reserved = [sum(lease.samples for lease in actor.leases) for actor in run.leases.actors]
        assert run.leases.reserved == sum(reserved)
        # A call may return up to 3 samples too many.
        assert run.leases.granted <= permitted + 3 * len(run.delivered)
        assert all(len(actor.leases) <= 3 for actor in run.leases.actors)
        issued += len(run.cluster.calls)
    assert issued

    for _ in range(1_000):  # all permitted samples are eventually delivered
        if run.leases.received >= permitted:
            break
        run.permit(permitted, last=True)
        place()
        for call in list(run.cluster.calls):
            incarnation = run.leases.actors[call.actor_id].incarnation
            if call.incarnation == incarnation:
                run.answer(call)
            else:
                run.cluster.calls.remove(call)
        run.pump(6.0)
    assert sum(rows for _, rows in run.delivered) == run.leases.received >= permitted


@pytest.mark.parametrize("num_envs", [1, 4])
def test_leases_never_exceed_the_space_for_their_samples(num_envs: int) -> None:
    run = Run(2, paced_samples=2, num_envs=num_envs)
    run.leases.space = 0
    run.build(0, 1)
    run.permit(100)
    assert run.in_flight == []
    run.leases.space = 3
    run.pump()
    assert 0 < sum(run.in_flight) <= 3


def test_leases_are_whole_steps_of_all_environments() -> None:
    run = Run(2, paced_samples=2, num_envs=4)
    run.build(0, 1)
    run.grow(0, 7)
    run.permit(32, last=True)
    assert {samples % 4 for samples in run.in_flight} == {0}
    while run.cluster.calls:
        run.answer(run.cluster.calls[0])
    assert run.leases.received == 32
