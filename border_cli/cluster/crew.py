"""Pieces of work done by workers on a Ray cluster; a piece whose worker is lost is done again.

`Crew` decides who does what until when, with a transport and a clock that are handed in;
`CrewOnRay` is Ray. A worker takes a piece and answers within about a second, either with the
result or with `GOING`, and is then called again: so every call has a deadline, however long a
piece takes. Ray is imported by `CrewOnRay`, as `connection.py` says.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from border_cli.cluster.remote import why
from border_cli.core.errors import BadStep, RunFailed
from border_cli.core.threads import BLAS_VARIABLES
from border_cli.core.timing import Clock
from border_cli.core.words import counted

log = logging.getLogger(__name__)

GOING: Final = "going"  # the answer of a worker that has not finished its piece
MAX_TRIES = 3  # of one piece, and of starting a worker in a row
STARTS_S = 300.0  # imports from a slow disk, and the wait for free resources
LOOK_S = 0.2


class Worker(Protocol):
    """What runs on the cluster; the class must be importable on its nodes."""

    def begin(self) -> None:
        """Imports and builds what it needs."""

    def take(self, piece: Any, common: Any) -> Any:
        """Begins a piece; the result, or `GOING`."""

    def go_on(self) -> Any:
        """Continues the piece that it has; the result, or `GOING`."""


class Lost(NamedTuple):
    """The answer of a worker that is gone."""

    reason: str


class Transport(Protocol):
    """Reaches the workers. A worker and a call are whatever it gives out."""

    def put(self, value: Any) -> Any:
        """What stands for a value in the arguments of calls, so that it travels once."""

    def start(self) -> Any:
        """A new worker, perhaps not there yet."""

    def call(self, worker: Any, method: str, *arguments: Any) -> Any:
        """Calls a method of a worker, and does not wait."""

    def answers(self, calls: Sequence[Any], timeout_s: float) -> list[tuple[Any, Any]]:
        """The calls that have returned, with their answers, as soon as there is one. Raises what
        a worker raised."""

    def kill(self, worker: Any) -> None:
        """Ends a worker, whatever it does."""


@dataclass(slots=True)
class _Call:
    """A call under way."""

    worker: Any
    piece: int | None  # None: the worker begins
    deadline_s: float


class Crew:
    """Up to `size` workers; one thread owns it."""

    def __init__(
        self,
        transport: Transport,
        size: int,
        *,
        stall_s: float,
        clock: Clock,
        beat: Callable[[], object],
    ) -> None:
        """`stall_s`: within which a call must return. `beat` is called while it waits."""
        self._transport = transport
        self._size = size
        self._stall_s = stall_s
        self._clock = clock
        self._beat = beat
        self._calls: dict[Any, _Call] = {}
        self._idle: dict[Any, int | None] = {}  # worker -> the piece that it did last
        self._failed_starts = 0
        self.num_lost = 0  # workers that were lost

    def run(self, pieces: Sequence[Any], common: Any) -> list[Any]:
        """The results, in the order of the pieces. `common` travels once, and to whom it must.

        Raises RunFailed for a piece that no worker survives, and where no worker starts.
        """
        common = self._transport.put(common)
        waiting = deque(range(len(pieces)))
        tries = [0] * len(pieces)
        results: dict[int, Any] = {}
        while len(results) < len(pieces):
            self._fill(len(pieces) - len(results))
            for worker, piece in self._assigned(waiting):
                self._call(worker, piece, "take", pieces[piece], common)
            for call, reason in self._look(results):
                self._lose(call, reason)
                if call.piece is not None:
                    tries[call.piece] += 1
                    if tries[call.piece] >= MAX_TRIES:
                        raise RunFailed(f"{counted(MAX_TRIES, 'worker')} were lost: {reason}")
                    waiting.appendleft(call.piece)
        return [results[number] for number in range(len(pieces))]

    def _fill(self, wanted: int) -> None:
        """Starts workers where there are fewer than there may be and than there is work for."""
        for _ in range(min(self._size, wanted) - len(self._idle) - len(self._calls)):
            self._call(self._transport.start(), None, "begin")

    def _assigned(self, waiting: deque[int]) -> Iterator[tuple[Any, int]]:
        """Idle workers and their next pieces: the one that they did last, if they can."""
        for worker, last in list(self._idle.items()):
            if last is not None and last in waiting:
                waiting.remove(last)
                del self._idle[worker]
                yield worker, last
        while waiting and self._idle:
            worker = next(iter(self._idle))
            del self._idle[worker]
            yield worker, waiting.popleft()

    def _call(self, worker: Any, piece: int | None, method: str, *arguments: Any) -> None:
        call = self._transport.call(worker, method, *arguments)
        limit_s = STARTS_S if piece is None else self._stall_s
        self._calls[call] = _Call(worker, piece, self._clock.now_s() + limit_s)

    def _look(self, results: dict[int, Any]) -> list[tuple[_Call, str]]:
        """Waits for answers; the calls that were lost, and why."""
        lost = []
        for key, answer in self._transport.answers(list(self._calls), LOOK_S):
            call = self._calls.pop(key)
            if isinstance(answer, Lost):
                lost.append((call, answer.reason))
            elif call.piece is None:
                self._failed_starts = 0
                self._idle[call.worker] = None
            elif isinstance(answer, str) and answer == GOING:
                self._call(call.worker, call.piece, "go_on")
            else:
                results[call.piece] = answer
                self._idle[call.worker] = call.piece
        self._beat()
        now_s = self._clock.now_s()
        for key, call in list(self._calls.items()):
            if now_s > call.deadline_s:
                del self._calls[key]
                limit_s = STARTS_S if call.piece is None else self._stall_s
                lost.append((call, f"a worker did not answer for {limit_s:g} s"))
        return lost

    def _lose(self, call: _Call, reason: str) -> None:
        self._transport.kill(call.worker)
        self.num_lost += 1
        if call.piece is None:
            self._failed_starts += 1
            if self._failed_starts >= MAX_TRIES:
                raise RunFailed(f"no worker could be started: {reason}")
        log.warning("a worker on the cluster is lost, its work is done again: %s", reason)

    def close(self) -> None:
        """Ends the workers."""
        for worker in [*self._idle, *(call.worker for call in self._calls.values())]:
            self._transport.kill(worker)
        self._idle.clear()
        self._calls.clear()


class CrewOnRay:
    """Workers as Ray actors; in a process that is connected to the cluster."""

    def __init__(
        self,
        worker: type[Any],
        arguments: Sequence[Any],
        *,
        name: str,
        options: Mapping[str, Any],
    ) -> None:
        """Workers are made with `arguments`, and have Ray's `options` and names after `name`."""
        import ray

        self._ray = ray
        self._worker: Any = ray.remote(worker)
        # One thread each, as everywhere: others add numbers up in another order.
        threads = {"env_vars": dict.fromkeys(BLAS_VARIABLES, "1")}
        self._options = {
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
            "runtime_env": threads,
            **options,
        }
        self._arguments = list(arguments)
        self._name = name
        self._started = 0

    def put(self, value: Any) -> Any:
        return self._ray.put(value)

    def start(self) -> Any:
        name = f"{self._name}-{self._started}"
        self._started += 1
        return self._worker.options(name=name, **self._options).remote(*self._arguments)

    def call(self, worker: Any, method: str, *arguments: Any) -> Any:
        return getattr(worker, method).remote(*arguments)

    def answers(self, calls: Sequence[Any], timeout_s: float) -> list[tuple[Any, Any]]:
        ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return [(call, self._answer(call)) for call in ready]

    def _answer(self, call: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(call)
        except exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, BadStep):
                raise cause from None
            raise
        except exceptions.RayError as error:
            return Lost(why(error))

    def kill(self, worker: Any) -> None:
        self._ray.kill(worker)
