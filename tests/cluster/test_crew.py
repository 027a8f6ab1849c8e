"""Who does which piece of work until when, without a cluster and without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from border_cli.cluster.crew import GOING, LOOK_S, STARTS_S, Crew, Lost
from border_cli.core.errors import RunFailed

STALL_S = 10.0


class Pool:
    """A transport whose workers do as a script says, and the clock that goes on while it waits.

    A worker is its number, a call its number. `script` has words for the calls of a worker in
    their order: an answer, GOING, `Lost`, or None for a call that never returns.
    """

    def __init__(self, script: dict[int, list[Any]] | None = None) -> None:
        self.script = script or {}
        self.now = 0.0
        self.started = 0
        self.put_values: list[Any] = []
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self.killed: list[int] = []

    def now_s(self) -> float:
        return self.now

    def put(self, value: Any) -> Any:
        self.put_values.append(value)
        return ("put", value)

    def start(self) -> int:
        self.started += 1
        return self.started - 1

    def call(self, worker: int, method: str, *arguments: Any) -> int:
        self.calls.append((worker, method, arguments))
        return len(self.calls) - 1

    def answers(self, calls: Sequence[int], timeout_s: float) -> list[tuple[int, Any]]:
        assert timeout_s == LOOK_S
        found = [(call, self._answer(call)) for call in calls]
        returned = [(call, answer) for call, answer in found if answer is not None]
        if not returned:
            self.now += timeout_s
        for call, _ in returned:
            self.script.get(self.calls[call][0], [None])[:1] = []
        return returned

    def _answer(self, call: int) -> Any:
        worker, method, arguments = self.calls[call]
        if words := self.script.get(worker):
            return words[0]
        return f"did {arguments[0]}" if method == "take" else "ready"

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def takers(self) -> list[tuple[int, Any]]:
        return [(worker, args[0]) for worker, method, args in self.calls if method == "take"]


def crew_of(pool: Pool, size: int) -> tuple[Crew, list[float]]:
    beats: list[float] = []
    crew = Crew(pool, size, stall_s=STALL_S, clock=pool, beat=lambda: beats.append(pool.now))
    return crew, beats


def test_results_come_in_the_order_of_the_pieces_and_what_is_common_travels_once() -> None:
    pool = Pool({0: ["ready", GOING, GOING, "did a at last"]})
    crew, beats = crew_of(pool, 2)
    assert crew.run(["a", "b", "c"], "weights") == ["did a at last", "did b", "did c"]
    assert pool.put_values == ["weights"]
    assert pool.started == 2
    assert all(args[1] == ("put", "weights") for _, method, args in pool.calls if method == "take")
    assert beats
    crew.close()
    assert sorted(pool.killed) == [0, 1]


def test_the_piece_of_a_lost_worker_is_done_again_by_another() -> None:
    pool = Pool({0: ["ready", GOING, Lost("its node died")]})
    crew, _ = crew_of(pool, 2)
    assert crew.run(["a", "b"], None) == ["did a", "did b"]
    assert pool.killed == [0]
    assert crew.num_lost == 1
    lost = [piece for worker, piece in pool.takers() if worker == 0]
    assert [worker for worker, piece in pool.takers() if piece == lost[0]][-1] != 0


def test_a_call_that_does_not_return_in_time_counts_as_lost() -> None:
    pool = Pool({0: ["ready", GOING, None]})
    crew, _ = crew_of(pool, 1)
    assert crew.run(["a"], None) == ["did a"]
    assert pool.killed == [0]
    assert STALL_S < pool.now <= STALL_S + 2 * LOOK_S


def test_a_piece_that_no_worker_survives_ends_the_run() -> None:
    pool = Pool({worker: ["ready", Lost("out of memory")] for worker in range(9)})
    crew, _ = crew_of(pool, 1)
    with pytest.raises(RunFailed, match="3 workers were lost: out of memory"):
        crew.run(["a"], None)


def test_workers_that_never_start_end_the_run() -> None:
    pool = Pool({worker: [Lost("no module named border_cli")] for worker in range(9)})
    crew, _ = crew_of(pool, 2)
    with pytest.raises(RunFailed, match="no worker could be started: no module named border_cli"):
        crew.run(["a", "b"], None)


def test_a_worker_that_waits_for_resources_keeps_no_piece_from_the_others() -> None:
    pool = Pool({0: [None]})
    crew, _ = crew_of(pool, 2)
    assert crew.run(["a", "b", "c"], None) == ["did a", "did b", "did c"]
    assert {worker for worker, _ in pool.takers()} == {1}
    assert pool.now < STARTS_S


def test_a_worker_has_the_piece_again_that_it_had_before() -> None:
    pool = Pool()
    crew, _ = crew_of(pool, 3)
    for _ in range(3):
        crew.run(["a", "b", "c"], None)
    assert len(set(pool.takers())) == 3
    assert len(pool.takers()) == 9
