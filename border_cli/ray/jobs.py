"""The jobs of a sweep as processes on the nodes of a Ray cluster.

For each job, a Ray actor (`JobHost`) starts and monitors a process on its node, as the command does
on its own machine. `run` is the main function of the command's child process, which connects to
the cluster. Job hosts end with this process, and the process of a job ends with its host.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from border_cli.ray.connection import ClusterSettings, connect
from border_cli.ray.nodes import ClusterNeeds, check_nodes, options_of
from border_cli.ray.remote import describe_error, log_printed_lines
from border_cli.settings.run import StartMethod
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import start_context, wait_for

# Orders from the command, with the number of a job and further values.
START: Final = "start"  # a `Work`
SIGNAL: Final = "signal"  # the signal number
KILL: Final = "kill"

# Messages to the command, with the number of a job and further values.
BEGUN: Final = "begun"  # host, pid
OVER: Final = "over"  # the reason, or None if the process ended normally

WATCH_S = 1.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The main function of a job's process, and a file that its node must be able to access."""

    name: str
    main: Callable[..., None]  # called with `args` and the pipe of the process
    args: tuple[Any, ...]
    shared: str  # path of a file in the directory shared by all nodes


class JobHost:
    """A Ray actor that owns the process of one job; each call runs in its own thread."""

    _child: ChildProcess

    def start(self, work: Work) -> tuple[str, int]:
        """Starts the process and returns the name of this machine and the process id."""
        if not Path(work.shared).exists():
            raise FileNotFoundError(
                f"node {platform.node()} does not see {work.shared}: the jobs of a sweep write to "
                "a directory that all nodes must share"
            )
        # Otherwise a spawned process would first run the main script of this one, which is Ray's.
        with suppress(AttributeError):
            del sys.modules["__main__"].__file__
        context = start_context(StartMethod.spawn, [])
        self._child = ChildProcess(context, work.name, work.main, *work.args, nice=0)
        return platform.node(), self._child.pid

    def watch(self) -> str | None:
        """Waits until the process ends and returns the reason."""
        while self._child.alive:
            wait_for(self._child.waitables, WATCH_S)
            self._child.listen()  # forwards its log records
        return self._child.reap()

    def signal(self, signum: int) -> None:
        """Sends a signal to the process."""
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signum)


@dataclass(slots=True)
class _Hosted:
    """The state of a job in the connected process."""

    host: Any  # handle of the Ray actor
    call: Any  # call in progress
    begun: bool = False


class Jobs:
    """The running jobs and their hosts; owned by the main thread of the connected process."""

    def __init__(self, resources: Mapping[str, float], pipe: Pipe) -> None:
        import ray

        self._ray = ray
        self._pipe = pipe
        self._host: Any = ray.remote(JobHost)
        self._options = {"max_restarts": 0, "max_concurrency": 2, **options_of(resources)}
        self._jobs: dict[int, _Hosted] = {}

    def execute(self, word: str, number: int, *values: Any) -> None:
        """Executes an order from the command."""
        if word == START:
            work: Work = values[0]
            host = self._host.options(name=work.name, **self._options).remote()
            self._jobs[number] = _Hosted(host, host.start.remote(work))
        elif (job := self._jobs.get(number)) is None:
            return  # the job has already ended
        elif word == SIGNAL and job.begun:
            job.host.signal.remote(values[0])
        elif word == KILL:
            self._finish(number, "killed")

    def look(self, timeout_s: float) -> None:
        """Waits for the next reply of a host, if a job is running."""
        calls = {job.call: number for number, job in self._jobs.items()}
        if not calls:
            return
        ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        for call in ready:
            number, job = calls[call], self._jobs[calls[call]]
            try:
                reply = self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                self._finish(number, describe_error(error))
                continue
            if job.begun:
                self._finish(number, reply)
            else:
                job.begun, job.call = True, job.host.watch.remote()
                self._pipe.send(BEGUN, number, *reply)

    def _finish(self, number: int, cause: str | None) -> None:
        self._ray.kill(self._jobs.pop(number).host)
        self._pipe.send(OVER, number, cause)

    @property
    def busy(self) -> bool:
        """True if a job is running."""
        return bool(self._jobs)


def run(cluster: ClusterSettings, resources: Mapping[str, float], pipe: Pipe) -> None:
    """Runs the connected process: executes orders until the command closes the pipe."""
    log_printed_lines()
    with connect(cluster):
        needs = ClusterNeeds(
            setting="hydra/launcher=ray", group="hydra.launcher", resources=resources
        )
        check_nodes(cluster, needs)
        jobs = Jobs(resources, pipe)
        pipe.send(READY)
        while True:
            if not pipe.poll(0 if jobs.busy else POLL_S):
                jobs.look(POLL_S)
                continue
            try:
                jobs.execute(*pipe.receive())
            except (EOFError, OSError):
                return
