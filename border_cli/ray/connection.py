"""The connection of a process to a Ray cluster.

Ray is imported only in child processes (`border_cli/system/`), after its environment variables are
set. The learner's process never imports it, because Ray's threads contend for the GIL, and because
Ray ends its process when the head node is gone. An unusable cluster raises `ClusterRefused`, which
the child process passes to its parent.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any, Final

from border_cli.errors import ClusterRefused, MissingPackage
from border_cli.ray.travel import runtime_env
from border_cli.system.machine import available_cores

PACKAGE: Final = "border-cli[ray]"
AUTO: Final = "auto"
CLIENT: Final = "ray://"

# Time limits in seconds.
PROBE_S = 5.0  # to connect to the cluster's port
JOIN_S = 25.0  # to join a reachable cluster, whose head node may be busy
SHUTDOWN_S = 10.0  # to shut down a Ray started by this process
START_S = 100.0  # to start Ray on a slow disk or a busy machine

_FOR_ALL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Seconds without the head node after which Ray ends the process or rejects the next call.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "6",
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "6",
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # one retry per second; Ray's default is 20
    "RAY_BACKEND_LOG_LEVEL": "error",
}
_FOR_OUR_OWN = {
    "RAY_worker_niceness": "0",  # with Ray's default of 15, actors wake up late
    # Makes all servers listen only on the loopback interface, because the metrics pages require no
    # token. Passing 127.0.0.1 as `_node_ip_address` has no effect, because Ray replaces it.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The cluster to connect to, and the setting to name in errors; picklable."""

    address: str | None  # auto, host:port or ray://host:port; None starts Ray on this machine
    setting: str = "actor_manager.address"  # path of the setting that contains the address
    environment: Mapping[str, str] = field(default_factory=dict)  # variables needed to join
    modules: Sequence[str] = ()  # paths of the modules to send to an existing cluster

    def __str__(self) -> str:
        """Returns the setting and its value, e.g. `actor_manager.address=auto`."""
        return f"{self.setting}={'null' if self.address is None else self.address}"


def refuse_without_ray(what: str) -> None:
    """Raises MissingPackage with the install command if Ray is not installed.

    Does not import Ray. `what` is the setting that needs it."""
    if importlib.util.find_spec("ray") is None:
        raise MissingPackage(what, PACKAGE)


@contextmanager
def connect(settings: ClusterSettings) -> Iterator[ClusterSettings]:
    """Connects this process to the cluster within the block. For child processes only.

    Yields the settings with which another process on this machine can join the same Ray. If Ray is
    started here, it ends with the block, or with this process if that ends first.
    """
    refuse_without_ray(str(settings))
    environment = {**_FOR_ALL, **settings.environment}
    if settings.address is None:
        environment |= _FOR_OUR_OWN
        # Restricts this Ray to the processes of this run, unless the user has chosen a mode.
        # Without a token here, Ray would write one to the home directory and advertise it.
        if "RAY_AUTH_MODE" not in os.environ:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(environment)  # read by Ray when it is imported
    refuse_unreachable(settings)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    with _connected(settings):
        address = settings.address or ""
        if not address.startswith(CLIENT):
            address = ray.get_runtime_context().gcs_address
        environment = {name: environment[name] for name in environment if name not in _FOR_ALL}
        yield replace(settings, address=address, environment=environment)


def refuse_unreachable(settings: ClusterSettings) -> None:
    """Raises ClusterRefused if the address is invalid or accepts no connections.

    Ray itself would wait for a long time. This function does not import Ray."""
    address = settings.address
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS")
        if address in (AUTO, "local"):
            return
    if address is None:
        return
    if _split_address(address) is None:
        raise ClusterRefused(
            f"{settings.setting} must be auto, host:port, ray://host:port or null, got {address!r}"
        )
    reason = find_connection_error(address, PROBE_S)
    if reason is not None:
        raise ClusterRefused(
            f"{settings}: nothing answers at "
            f"{address.removeprefix(CLIENT)} ({reason}): is the head node up, and can its port be "
            "reached from here?"
        )


def find_connection_error(address: str, timeout_s: float) -> str | None:
    """Returns why the address accepts no connections, or None if it does."""
    endpoint = _split_address(address)
    assert endpoint is not None
    try:
        socket.create_connection(endpoint, timeout=timeout_s).close()
    except OSError as error:
        return str(error)
    return None


def _split_address(address: str) -> tuple[str, int] | None:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


@contextmanager
def _connected(settings: ClusterSettings) -> Iterator[None]:
    """Connects and disconnects in a separate thread, because connecting may hang.

    The kernel ends the processes of a Ray started here together with the thread that started them,
    so the thread lives as long as the block. Outside the main thread, Ray does not replace the
    SIGTERM handler.
    """
    failures: list[BaseException] = []
    connected, finished = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with _initialized(settings):
                connected.set()
                finished.wait()
        except BaseException as error:
            failures.append(error)
        finally:
            connected.set()

    limit_s, hint = (
        (START_S, "this machine is too busy to start Ray, or its disk is too slow")
        if settings.address is None
        else (JOIN_S, "is it the port of a head node?")
    )
    thread = threading.Thread(target=run, name="ray", daemon=True)
    thread.start()
    if not connected.wait(limit_s):
        raise ClusterRefused(f"{settings}: no connection within {limit_s:g} s; {hint}")
    if failures:
        raise ClusterRefused(f"{settings}: {_explained(failures[0])}") from failures[0]
    try:
        yield
    finally:
        finished.set()
        thread.join(SHUTDOWN_S)


def _explained(error: BaseException) -> str:
    """Returns why a connection failed, and how to fix it."""
    text = "".join(traceback.format_exception(error))
    if "AuthToken" in text:
        return (
            "the cluster requires a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or "
            "~/.ray/auth_token to the token of the cluster"
        )
    if "Could not find any running Ray" in text:
        return (
            "Ray is not running on this machine: start it (ray start --head), or set the address "
            "to the host:port of a head node, or to null, which starts Ray for this run"
        )
    return f"{error}".strip() or type(error).__name__


@contextmanager
def _initialized(settings: ClusterSettings) -> Iterator[None]:
    """Initializes Ray within the block, and afterwards removes the files of a Ray started here."""
    import ray

    # The parent directory that Ray would choose: the paths of sockets must be short.
    root = os.environ.get("RAY_TMPDIR") or (None if sys.platform == "linux" else "/tmp")
    with TemporaryDirectory(prefix="border_ray_", dir=root, ignore_cleanup_errors=True) as folder:
        options: dict[str, Any] = {"address": settings.address}
        if settings.address is None:
            local_options = {"include_dashboard": False, "num_cpus": available_cores()}
            options = {"address": "local", "_temp_dir": folder, **local_options}
        modules = runtime_env(settings.modules)
        ray.init(configure_logging=False, log_to_driver=False, runtime_env=modules, **options)
        yield
        ray.shutdown()
