"""The connection of one process to a Ray cluster.

Ray is imported by functions of this room that child processes alone call (`border_cli/system/`),
once its environment is set; never in the learner's: its threads take the interpreter's lock, and it
ends its process once a head node is gone. What cannot work raises `ClusterRefused`, which the
child hands to its parent.
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

PROBE_S = 5.0  # for an answer of the cluster's port
JOIN_S = 25.0  # for joining what answers like Ray, which a loaded head node may take
SHUTDOWN_S = 10.0  # for the end of a Ray of our own
START_S = 100.0  # for the start of a Ray of our own, on a slow disk or a busy machine

_FOR_ALL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Seconds without the head node before Ray ends the process, or refuses the next call.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "6",
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "6",
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # once a second; otherwise 20 before it reports a failure
    "RAY_BACKEND_LOG_LEVEL": "error",
}
_FOR_OUR_OWN = {
    "RAY_worker_niceness": "0",  # added to this process's; Ray adds 15, and actors wake up late
    # All its servers listen on the loopback interface alone, because its pages of metrics ask for
    # no token. Ray replaces 127.0.0.1 as `_node_ip_address`.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Which cluster, and the settings to name in a refusal; picklable."""

    address: str | None  # None starts a Ray on this machine; auto, host:port, or ray://host:port
    setting: str = "actor_manager.address"  # where the address was given
    environment: Mapping[str, str] = field(default_factory=dict)  # that a process needs to join
    modules: Sequence[str] = ()  # paths of those that travel to a cluster that is joined

    def __str__(self) -> str:
        """`actor_manager.address=auto`."""
        return f"{self.setting}={'null' if self.address is None else self.address}"


def refuse_without_ray(what: str) -> None:
    """Raises MissingPackage, with the line that installs it, where Ray is not installed; imports
    nothing. `what` is the setting that needs it."""
    if importlib.util.find_spec("ray") is None:
        raise MissingPackage(what, PACKAGE)


@contextmanager
def connect(settings: ClusterSettings) -> Iterator[ClusterSettings]:
    """Within the block this process is connected to the cluster; in a child process only.

    Gives the settings with which another process of this machine joins the same Ray. A Ray that it
    starts ends with the block, and with this process however that ends.
    """
    refuse_without_ray(str(settings))
    environment = {**_FOR_ALL, **settings.environment}
    if settings.address is None:
        environment |= _FOR_OUR_OWN
        # Only this run's processes may use it, and not others of this machine. A choice of the
        # user's counts. Without one Ray would write a token to the home directory and advertise it.
        if "RAY_AUTH_MODE" not in os.environ:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(environment)  # Ray reads it as it is imported
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
    """Raises ClusterRefused where nothing takes connections at the address, for which Ray would
    wait long, or where it is none; in any process, without Ray."""
    address = settings.address
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS")
    if address in (None, AUTO, "local"):
        return
    if _host_and_port(address) is None:
        raise ClusterRefused(
            f"{settings.setting} must be auto, host:port, ray://host:port or null, got {address!r}"
        )
    reason = unanswered(address, PROBE_S)
    if reason is not None:
        raise ClusterRefused(
            f"{settings}: nothing answers at "
            f"{address.removeprefix(CLIENT)} ({reason}): is the head node up, and can its port be "
            "reached from here?"
        )


def unanswered(address: str, timeout_s: float) -> str | None:
    """Why nothing takes connections at the address; None if something does."""
    place = _host_and_port(address)
    assert place is not None
    try:
        socket.create_connection(place, timeout=timeout_s).close()
    except OSError as error:
        return str(error)
    return None


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


@contextmanager
def _connected(settings: ClusterSettings) -> Iterator[None]:
    """Connects in a thread, which a cluster that does not answer may keep, and disconnects there.

    The kernel ends what a Ray of our own consists of with the thread that started it, which
    therefore lives as long as the block. Beside the main thread Ray leaves SIGTERM's handler alone.
    """
    failures: list[BaseException] = []
    connected, over = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with _initialized(settings):
                connected.set()
                over.wait()
        except BaseException as error:
            failures.append(error)
        finally:
            connected.set()

    limit_s, doubt = (
        (START_S, "this machine is too busy to start a Ray, or its disk too slow")
        if settings.address is None
        else (JOIN_S, "is it the port of a head node?")
    )
    thread = threading.Thread(target=run, name="ray", daemon=True)
    thread.start()
    if not connected.wait(limit_s):
        raise ClusterRefused(f"{settings}: no connection within {limit_s:g} s; {doubt}")
    if failures:
        raise ClusterRefused(f"{settings}: {_explained(failures[0])}") from failures[0]
    try:
        yield
    finally:
        over.set()
        thread.join(SHUTDOWN_S)


def _explained(error: BaseException) -> str:
    """The meaning of a failed connection, and the remedy."""
    said = "".join(traceback.format_exception(error))
    if "AuthToken" in said:
        return (
            "the cluster asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or "
            "~/.ray/auth_token to the token of the cluster"
        )
    if "Could not find any running Ray" in said:
        return (
            "no Ray runs on this machine: start one (ray start --head), give the host:port of a "
            "head node, or null, which starts a Ray for this run"
        )
    return f"{error}".strip() or type(error).__name__


@contextmanager
def _initialized(settings: ClusterSettings) -> Iterator[None]:
    """The files of a Ray of our own, which it would leave behind, are removed after the block."""
    import ray

    # Where Ray would have them: the paths of its sockets must be short.
    root = os.environ.get("RAY_TMPDIR") or (None if sys.platform == "linux" else "/tmp")
    with TemporaryDirectory(prefix="border_ray_", dir=root, ignore_cleanup_errors=True) as folder:
        options: dict[str, Any] = {"address": settings.address}
        if settings.address is None:
            own = {"include_dashboard": False, "num_cpus": available_cores()}
            options = {"address": "local", "_temp_dir": folder, **own}
        modules = runtime_env(settings.modules)
        ray.init(configure_logging=False, log_to_driver=False, runtime_env=modules, **options)
        yield
        ray.shutdown()
