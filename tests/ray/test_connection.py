"""Clusters that cannot be joined: refused addresses and the messages about them."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from border_cli.errors import ClusterRefused
from border_cli.ray import connection
from border_cli.ray.connection import (
    ClusterSettings,
    _connected,
    _explained,
    find_connection_error,
    refuse_unreachable,
)
from tests.support.commands import isolated, train_status

RAY = ("actor_manager=ray",)


class SilentRay(ModuleType):
    """A fake `ray` module whose `init` blocks until `over` is set, and then fails."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.over = threading.Event()

    def init(self, **options: object) -> None:
        del options
        self.over.wait()
        raise ConnectionError("given up")


def test_an_address_where_nothing_answers_is_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for typed in (address, f"ray://{address}"):
            with pytest.raises(ClusterRefused, match=f"={typed}: nothing answers at {address} "):
                refuse_unreachable(ClusterSettings(address=typed))
        closed.listen()
        assert find_connection_error(address, 1.0) is None


@pytest.mark.parametrize("address", ["node-1", "local"])
def test_an_address_must_have_a_port(address: str) -> None:
    with pytest.raises(ClusterRefused, match="must be auto, host:port, ray://host:port or null"):
        refuse_unreachable(ClusterSettings(address=address))


def test_a_missing_token_is_told() -> None:
    error = ConnectionError("Failed to connect to Ray cluster at h:1")
    error.__cause__ = RuntimeError("Unauthenticated: InvalidAuthToken")
    assert "RAY_AUTH_MODE=token" in _explained(error)


@pytest.mark.parametrize(
    ("address", "doubt"),
    [
        (None, "=null: no connection within 0 s; this machine is too busy to start Ray"),
        ("127.0.0.1:1", "within 0 s; is it the port of a head node"),
    ],
)
def test_a_timeout_questions_the_port_only_if_an_address_was_given(
    monkeypatch: pytest.MonkeyPatch, address: str | None, doubt: str
) -> None:
    ray = SilentRay("ray")
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name in ("START_S", "JOIN_S"):
        monkeypatch.setattr(connection, name, 0.0)
    with pytest.raises(ClusterRefused, match=doubt), _connected(ClusterSettings(address=address)):
        pass
    ray.over.set()
    [connector] = [thread for thread in threading.enumerate() if thread.name == "ray"]
    connector.join()


@pytest.mark.ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "node-1"])
def test_a_run_without_its_cluster_is_refused_before_anything_is_written(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with isolated(tmp_path):
        status = train_status("agent=dqn", "env=cartpole", *RAY, f"actor_manager.address={address}")
    assert status == 2
    assert "actor_manager.address" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
