"""Processes on the nodes of a Ray cluster, one for each job of a sweep.

A Ray actor on the node, `JobHost`, starts the process of its job and watches it, as a command does
on its own machine. A host ends with the child process of the command that is connected to the
cluster (`run`), and the process of a job with its host.
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
from border_cli.ray.remote import log_what_is_printed, why
from border_cli.settings.run import StartMethod
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import start_context, wait_for

# Orders of the command, each with the number of its job.
START: Final = "start"  # `Work`
SIGNAL: Final = "signal"  # the number of one for the process of the job
KILL: Final = "kill"

# What the command is told, each with the number of the job.
BEGUN: Final = "begun"  # host, pid
OVER: Final = "over"  # the reason; None where the process ended as it was meant to

WATCH_S = 1.0
LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The function that the process of a job runs, and the file that its node must see."""

    name: str
    main: Callable[..., None]  # called with `args` and its pipe
    args: tuple[Any, ...]
    shared: str  # a file that every node sees


class JobHost:
    """Runs on a node as a Ray actor with a thread for each call; owns the process of one job."""

    _child: ChildProcess

    def start(self, work: Work) -> tuple[str, int]:
        """Starts the process; returns the name of this machine, and the process's id."""
        if not Path(work.shared).exists():
            raise FileNotFoundError(
                f"node {platform.node()} does not see {work.shared}: the jobs of a sweep write to "
                "a directory that all nodes must share"
            )
        # A process that is spawned would first run the script of this one, which is Ray's.
        with suppress(AttributeError):
            del sys.modules["__main__"].__file__
        context = start_context(StartMethod.spawn, [])
        self._child = ChildProcess(context, work.name, work.main, *work.args, nice=0)
        return platform.node(), self._child.pid

    def watch(self) -> str | None:
        """Waits for the end of the process; returns why it ended."""
        while self._child.alive:
            wait_for(self._child.waitables, WATCH_S)
            self._child.listen()  # to what it logs
        return self._child.reap()

    def signal(self, signum: int) -> None:
        """Passes a signal on."""
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signum)


@dataclass(slots=True)
class _Hosted:
    """A job as the connected process sees it."""

    host: Any  # the handle of its Ray actor
    call: Any  # the call under way
    begun: bool = False


class Jobs:
    """Starts hosts and passes signals on; owned by the main thread of the connected process."""

    def __init__(self, resources: Mapping[str, float], pipe: Pipe) -> None:
        import ray

        self._ray = ray
        self._pipe = pipe
        self._host: Any = ray.remote(JobHost)
        self._options = {"max_restarts": 0, "max_concurrency": 2, **options_of(resources)}
        self._jobs: dict[int, _Hosted] = {}

    def obey(self, word: str, number: int, *values: Any) -> None:
        """Does what the command says."""
        if word == START:
            work: Work = values[0]
            host = self._host.options(name=work.name, **self._options).remote()
            self._jobs[number] = _Hosted(host, host.start.remote(work))
        elif (job := self._jobs.get(number)) is None:
            return  # it has ended meanwhile
        elif word == SIGNAL and job.begun:
            job.host.signal.remote(values[0])
        elif word == KILL:
            self._over(number, "killed")

    def look(self, timeout_s: float) -> None:
        """Waits for the next answer, if a job is under way."""
        calls = {job.call: number for number, job in self._jobs.items()}
        if not calls:
            return
        ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        for call in ready:
            number, job = calls[call], self._jobs[calls[call]]
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                self._over(number, why(error))
                continue
            if job.begun:
                self._over(number, answer)
            else:
                job.begun, job.call = True, job.host.watch.remote()
                self._pipe.send(BEGUN, number, *answer)

    def _over(self, number: int, cause: str | None) -> None:
        self._ray.kill(self._jobs.pop(number).host)
        self._pipe.send(OVER, number, cause)

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return bool(self._jobs)


def run(cluster: ClusterSettings, resources: Mapping[str, float], pipe: Pipe) -> None:
    """The connected process: runs jobs until the command closes the pipe."""
    log_what_is_printed()
    with connect(cluster):
        needs = ClusterNeeds(
            setting="hydra/launcher=ray", group="hydra.launcher", resources=resources
        )
        check_nodes(cluster, needs)
        jobs = Jobs(resources, pipe)
        pipe.send(READY)
        while True:
            if not pipe.poll(0 if jobs.busy else LOOK_S):
                jobs.look(LOOK_S)
                continue
            try:
                jobs.obey(*pipe.receive())
            except (EOFError, OSError):
                return
