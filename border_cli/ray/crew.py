"""Pieces of work done by workers on a Ray cluster; a piece whose worker is lost is done again.

A worker answers within about a second, either with its result or with `GOING`, and is then called
again: while they answer, the process of the crew is seen to move. Ray is imported by the functions
that use it, as `connection.py` says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from border_cli.errors import BadStep, RunFailed
from border_cli.ray.remote import why
from border_cli.system.machine import BLAS_VARIABLES
from border_cli.words import counted

log = logging.getLogger(__name__)

GOING: Final = "going"  # the answer of a worker that has not finished its piece
MAX_TRIES = 3  # of one piece
LOOK_S = 0.2


class Crew:
    """One worker for each piece, as Ray actors; one thread owns it.

    A worker has `take(piece, common)` and `go_on()`, which return a result or `GOING`.
    """

    def __init__(
        self,
        worker: type[Any],
        arguments: Sequence[Any],
        *,
        name: str,
        options: Mapping[str, Any],
        beat: Callable[[], object],
    ) -> None:
        """Workers are made with `arguments`, and have Ray's `options` and names after `name`.
        `beat` is called with each answer."""
        import ray

        self._ray = ray
        self._worker: Any = ray.remote(worker)
        self._arguments = arguments
        self._name = name
        # One thread each, as everywhere: others add numbers up in another order.
        threads = {"env_vars": dict.fromkeys(BLAS_VARIABLES, "1")}
        spread = {"scheduling_strategy": "SPREAD", "runtime_env": threads}
        self._options = {"max_restarts": 0, "max_task_retries": 0, **spread, **options}
        self._beat = beat
        self._workers: dict[int, Any] = {}  # by the number of their piece
        self._started = 0

    def run(self, pieces: Sequence[Any], common: Any) -> list[Any]:
        """The results, in the order of the pieces. `common` travels once to each node.

        Raises RunFailed for a piece that no worker survives.
        """
        common = self._ray.put(common)
        tries = [0] * len(pieces)
        results: dict[int, Any] = {}

        def take(number: int) -> Any:
            if number not in self._workers:
                self._workers[number] = self._start()
            return self._workers[number].take.remote(pieces[number], common)

        calls = {take(number): number for number in range(len(pieces))}
        while calls:
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=LOOK_S)
            for call in ready:
                number = calls.pop(call)
                try:
                    answer = self._answer(call)
                except self._ray.exceptions.RayError as error:
                    tries[number] += 1
                    self._lose(number, why(error), tries[number])
                    calls[take(number)] = number
                    continue
                self._beat()
                if isinstance(answer, str) and answer == GOING:
                    calls[self._workers[number].go_on.remote()] = number
                else:
                    results[number] = answer
        return [results[number] for number in range(len(pieces))]

    def _start(self) -> Any:
        name = f"{self._name}-{self._started}"
        self._started += 1
        return self._worker.options(name=name, **self._options).remote(*self._arguments)

    def _answer(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BadStep):
                raise error.cause from None
            raise RunFailed(why(error)) from error

    def _lose(self, number: int, reason: str, tries: int) -> None:
        self._ray.kill(self._workers.pop(number))
        if tries >= MAX_TRIES:
            raise RunFailed(f"{counted(MAX_TRIES, 'worker')} were lost: {reason}")
        log.warning("a worker on the cluster is lost, its work is done again: %s", reason)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers.values():
            self._ray.kill(worker)
        self._workers.clear()
