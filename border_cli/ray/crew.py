"""A crew of workers on a Ray cluster that run pieces of work.

A worker replies within about a second, with its result, or with `GOING` to be called again. Each
reply counts as a heartbeat of the process that owns the crew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from border_cli.errors import BadStep, RunFailed
from border_cli.ray.remote import describe_error
from border_cli.system.machine import BLAS_VARIABLES

GOING: Final = "going"  # reply of a worker that has not finished its piece
POLL_S = 0.2


class WorkerLost(Exception):
    """Raised when the process or the node of a worker is gone."""


class Crew:
    """A fixed number of workers, each a Ray actor; owned by one thread.

    A worker has the methods `take(piece, common)` and `go_on()`, which return a result or `GOING`.
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
        """Creates workers from `arguments` and Ray's `options`, with names that begin with `name`.
        `beat` is called after every reply."""
        import ray

        self._ray = ray
        # One BLAS thread per worker, because more threads would change the order of summation.
        runtime_env = {"env_vars": dict.fromkeys(BLAS_VARIABLES, "1")}
        worker_options = {"scheduling_strategy": "SPREAD", "runtime_env": runtime_env, **options}
        remote_class: Any = ray.remote(worker)
        self._workers = [
            remote_class.options(name=f"{name}-{number}", **worker_options).remote(*arguments)
            for number in range(size)
        ]
        self._beat = beat

    def run(self, pieces: Sequence[Any], common: Any) -> list[Any]:
        """Runs one piece per worker and returns the results. `common` is sent once to each node.

        Raises WorkerLost, after which the crew cannot be used any more.
        """
        common = self._ray.put(common)
        assignments = zip(self._workers, pieces, strict=True)
        calls = {
            worker.take.remote(piece, common): number
            for number, (worker, piece) in enumerate(assignments)
        }
        results: dict[int, Any] = {}
        while calls:
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=POLL_S)
            for call in ready:
                number, reply = calls.pop(call), self._get_reply(call)
                self._beat()
                if isinstance(reply, str) and reply == GOING:
                    calls[self._workers[number].go_on.remote()] = number
                else:
                    results[number] = reply
        return [results[number] for number in range(len(pieces))]

    def _get_reply(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BadStep):
                raise error.cause from None
            raise RunFailed(describe_error(error)) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(describe_error(error)) from error

    def close(self) -> None:
        """Kills the workers."""
        for worker in self._workers:
            self._ray.kill(worker)
