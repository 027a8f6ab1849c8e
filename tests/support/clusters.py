"""A local Ray cluster of several nodes, run by a separate process.

This file is also the script of that process. It reads commands from stdin, one JSON line per
command, replies on stdout, and shuts the cluster down at the end of its input.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from border_cli.errors import ClusterRefused
from border_cli.ray.connection import ClusterSettings, connect
from border_cli.ray.nodes import ClusterNeeds, check_nodes
from border_cli.settings.run import StartMethod
from border_cli.system.child import Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import start_context, wait_for

DEADLINE_S = 600.0
LOOKED = "looked"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster."""

    name: str
    node_id: str
    raylet: int  # pid


class RayCluster:
    """A client of the process that runs the cluster; starts and removes its nodes."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self._holder = holder
        self.address = ""

    def _ask(self, command: str, **values: Any) -> Any:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(json.dumps([command, values]) + "\n")
        self._holder.stdin.flush()
        line = self._holder.stdout.readline()
        assert line, "the cluster is gone"
        return json.loads(line)

    def add(self, name: str, *, cpus: float = 2, **more: Any) -> ClusterNode:
        """Starts a node; the first is the head. `more` goes to Ray: `resources`, `env_vars`."""
        address, node_id, raylet = self._ask("add", node_name=name, num_cpus=cpus, **more)
        self.address = address
        return ClusterNode(name, node_id, raylet)

    def remove(self, name: str) -> None:
        """Kills all processes of a node."""
        self._ask("remove", name=name)


@contextmanager
def running_cluster() -> Iterator[RayCluster]:
    """Starts a cluster without nodes; it ends with the block, or if this process dies."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: socket paths are limited
    environment = {
        **os.environ,
        "RAY_TMPDIR": folder,  # `auto` in other processes must not find this cluster
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
    }
    holder = subprocess.Popen(
        [sys.executable, __file__],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield RayCluster(holder)
    finally:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.close()
        holder.stdout.read()  # until all processes of the holder have exited
        holder.stdout.close()
        holder.wait(DEADLINE_S)
        shutil.rmtree(folder, ignore_errors=True)


class Visitor:
    """A child process connected to a cluster, killed at the end of the `with` block."""

    def __init__(self, settings: ClusterSettings) -> None:
        context = start_context(StartMethod.auto, [])
        self.child = ChildProcess(context, "visitor", _visit, settings, nice=0)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *rest: object) -> None:
        self.child.kill()
        self.child.reap()

    def until(self, ready: Callable[[], bool]) -> None:
        """Receives its messages and log records until `ready()`, or until it has ended."""
        end_s = monotonic() + DEADLINE_S
        while not ready() and self.child.alive:
            assert monotonic() < end_s, "the deadline has passed"
            wait_for(self.child.waitables, 1.0)
            self.child.listen()
        self.child.listen()

    def next(self) -> Any:
        """Returns the values of the next message, or None if the process has ended."""
        self.until(lambda: bool(self.child.inbox))
        return self.child.inbox.popleft()[1] if self.child.inbox else None

    def look(self, needs: ClusterNeeds) -> Any:
        """Returns the result of `check_nodes` in the child, or the text of its `ClusterRefused`."""
        self.child.connection.send(needs)
        return self.next()


def _visit(settings: ClusterSettings, pipe: Pipe) -> None:
    with connect(settings) as cluster:
        pipe.send("connected", cluster)
        while True:
            try:
                pipe.send(LOOKED, check_nodes(cluster, pipe.receive()))
            except ClusterRefused as error:
                pipe.send(LOOKED, str(error))


def hold() -> None:
    """Runs the script, detached from the test: Ray workers must not count as its children."""
    if os.fork():
        os._exit(0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.set_inheritable(answers.fileno(), False)
    from ray.cluster_utils import Cluster

    cluster, nodes = Cluster(), {}
    for line in sys.stdin:
        command, values = json.loads(line)
        reply: Any = None
        if command == "add":
            head = {"include_dashboard": False} if cluster.head_node is None else {}
            node = cluster.add_node(**head, include_log_monitor=False, no_monitor=True, **values)
            nodes[values["node_name"]] = node
            [raylet] = node.all_processes["raylet"]
            reply = [cluster.address, node.node_id, raylet.process.pid]
        elif command == "remove":
            cluster.remove_node(nodes.pop(values["name"]), allow_graceful=False)
        print(json.dumps(reply), file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    hold()
