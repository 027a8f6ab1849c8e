"""The launcher `hydra/launcher=ray`, which runs the jobs of a sweep on a Ray cluster.

A child process (`ray/jobs.py`) is connected to the cluster, so the command itself does not import
Ray. The child process always ends with the command, and so do all jobs on the cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from border_cli.errors import RunFailed
from border_cli.ray.connection import ClusterSettings, refuse_without_ray
from border_cli.ray.jobs import BEGUN, KILL, OVER, SIGNAL, START, Work
from border_cli.ray.jobs import run as run_jobs
from border_cli.settings.run import StartMethod
from border_cli.sweep.processes import StartProcess
from border_cli.sweep.worker import run_in_a_child
from border_cli.system.child_process import ChildProcess
from border_cli.system.files import SWEEP_JSON
from border_cli.system.start import start_context, wait_for

POLL_S = 0.2
ENDS_S = 10.0  # seconds for the child process to leave the cluster


class RayJob:
    """A job's process on the cluster."""

    def __init__(self, starter: RayStarter, number: int) -> None:
        self._starter = starter
        self._number = number
        self.host: str | None = None  # None while it waits for a node
        self.pid = 0
        self._over = False
        self._cause: str | None = None

    def take(self, word: str, *values: Any) -> None:
        """Processes a message from the connected process about this job."""
        if word == BEGUN:
            self.host, self.pid = values
        elif word == OVER:
            self._over, self._cause = True, values[0]

    @property
    def waitables(self) -> list[Any]:
        return self._starter.child.waitables

    @property
    def alive(self) -> bool:
        return not self._over and self._starter.child.alive

    def listen(self) -> None:
        self._starter.listen()

    def signal(self, signum: int) -> None:
        self._starter.child.tell(SIGNAL, self._number, signum)

    def kill(self) -> None:
        self._starter.child.tell(KILL, self._number)

    def reap(self) -> str | None:
        self._starter.forget(self._number)
        if self._over:
            return self._cause
        if self._starter.child.alive:
            self.kill()
            return None
        failure = self._starter.child.traceback or ""
        return f"the connection to the Ray cluster has ended. {failure}".strip()


class RayStarter:
    """A connection to the cluster that starts jobs; owns the connected child process."""

    def __init__(self, child: ChildProcess, root: Path) -> None:
        self.child = child
        self._root = root
        self._jobs: dict[int, RayJob] = {}

    def start(self, number: int, folder: Path) -> RayJob:
        work = Work(
            name=f"border/{self._root.name}/job-{number}",
            main=run_in_a_child,
            args=(str(folder),),
            shared=str(self._root / SWEEP_JSON),
        )
        self._jobs[number] = job = RayJob(self, number)
        self.child.tell(START, number, work)
        return job

    def listen(self) -> None:
        """Passes the messages of the connected process to their jobs."""
        self.child.listen()
        while self.child.inbox:
            word, number, *values = self.child.inbox.popleft()
            if number in self._jobs:
                self._jobs[number].take(word, *values)

    def forget(self, number: int) -> None:
        """Removes a job that has ended."""
        self._jobs.pop(number, None)


class RayLauncher:
    """A launcher for sweeps on a Ray cluster, with the `settings` of `hydra/launcher=ray`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.cores = max(1, int(settings["resources"].get("CPU", 1)))

    def refuse_missing(self) -> None:
        """Raises MissingPackage if Ray is not installed."""
        refuse_without_ray("hydra/launcher=ray")

    def at_once(self, jobs: int) -> int:
        """Returns how many jobs may run at once; by default all, because Ray queues them."""
        return self._settings["jobs"] or jobs or sys.maxsize

    @contextmanager
    def starts(self, root: Path) -> Iterator[StartProcess]:
        """Connects a child process to the cluster and yields a function that starts jobs in `root`.

        Raises ClusterRefused if the cluster is unreachable or lacks the required resources.
        """
        settings = self._settings
        cluster = ClusterSettings(address=settings["address"], setting="hydra.launcher.address")
        context = start_context(StartMethod.auto, [run_jobs.__module__])
        resources = dict(settings["resources"])
        child = ChildProcess(context, "Ray", run_jobs, cluster, resources, nice=0)
        try:
            while child.starting:
                wait_for(child.waitables, POLL_S)
                alive = child.alive
                child.listen()
                if not alive:
                    reason = child.traceback or "its process exited unexpectedly"
                    raise child.refusal or RunFailed(f"cannot connect to Ray: {reason}")
            yield RayStarter(child, root).start
        finally:
            child.connection.close()
            wait_for(child.waitables[-1:], ENDS_S)
            child.reap()
