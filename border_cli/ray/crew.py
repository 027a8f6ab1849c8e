"""Pieces of work done by workers on a Ray cluster.

A worker answers within about a second, either with its result or with `GOING`, and is then called
again: while they answer, the process of the crew is seen to move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from border_cli.errors import BadStep, RunFailed
from border_cli.ray.remote import why
from border_cli.system.machine import BLAS_VARIABLES

GOING: Final = "going"  # the answer of a worker that has not finished its piece
LOOK_S = 0.2


class WorkerLost(Exception):
    """The process or the node of a worker is gone."""


class Crew:
    """So many workers, as Ray actors; one thread owns it.

    A worker has `take(piece, common)` and `go_on()`, which return a result or `GOING`.
    """

    def __init__(
        self,
        worker: type[Any],
        arguments: Sequence[Any],
        *,
        size: int,
        name: str,
        options: Mapping[str, Any],
        beat: Callable[[], object],
    ) -> None:
        """Workers are made with `arguments`, and have Ray's `options` and names after `name`.
        `beat` is called with each answer."""
        import ray

        self._ray = ray
        # One thread each, as everywhere: others add numbers up in another order.
        threads = {"env_vars": dict.fromkeys(BLAS_VARIABLES, "1")}
        spread = {"scheduling_strategy": "SPREAD", "runtime_env": threads, **options}
        made: Any = ray.remote(worker)
        self._workers = [
            made.options(name=f"{name}-{number}", **spread).remote(*arguments)
            for number in range(size)
        ]
        self._beat = beat

    def run(self, pieces: Sequence[Any], common: Any) -> list[Any]:
        """The results, one piece for each worker. `common` travels once to each node.

        Raises WorkerLost, after which nothing more can be run.
        """
        common = self._ray.put(common)
        given = zip(self._workers, pieces, strict=True)
        calls = {
            worker.take.remote(piece, common): number
            for number, (worker, piece) in enumerate(given)
        }
        results: dict[int, Any] = {}
        while calls:
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=LOOK_S)
            for call in ready:
                number, answer = calls.pop(call), self._answer(call)
                self._beat()
                if isinstance(answer, str) and answer == GOING:
                    calls[self._workers[number].go_on.remote()] = number
                else:
                    results[number] = answer
        return [results[number] for number in range(len(pieces))]

    def _answer(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BadStep):
                raise error.cause from None
            raise RunFailed(why(error)) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(why(error)) from error

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            self._ray.kill(worker)
