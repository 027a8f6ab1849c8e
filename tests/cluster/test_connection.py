"""A cluster that cannot be joined."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import isolated, train_status

from border_cli.cluster.connection import ClusterSettings, _explained, _probe, unanswered
from border_cli.core.errors import ClusterRefused

RAY = ("actor_manager=ray",)


def test_an_address_where_nothing_answers_is_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for each in (address, f"ray://{address}"):
            with pytest.raises(ClusterRefused, match=f"={each}: nothing answers at {address} "):
                _probe(ClusterSettings(address=each))
        closed.listen()
        assert unanswered(address, 1.0) is None


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that takes two connections and answers what the second begins with.

    The first only asks whether anything takes connections.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            server.accept()[0].close()
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0" * 9])
def test_a_port_where_something_else_answers_is_refused(answer: bytes) -> None:
    with (
        answering(answer) as address,
        pytest.raises(ClusterRefused, match=f"={address}: what answers at {address} is no head"),
    ):
        _probe(ClusterSettings(address=address))


def test_a_port_where_grpc_answers_is_not() -> None:
    with answering(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as address:
        _probe(ClusterSettings(address=address))


def test_an_address_must_have_a_port() -> None:
    with pytest.raises(ClusterRefused, match="must be auto, host:port, ray://host:port or null"):
        _probe(ClusterSettings(address="node-1"))


def test_another_ray_on_the_cluster_is_told_with_both_versions() -> None:
    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.1\n"
        "This process on 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    assert _explained(error) == (
        "the cluster runs Ray: 2.9.0 Python: 3.11.1, this machine Ray: 2.60.0 Python: 3.11.7: "
        "install the same on every node"
    )


def test_a_missing_token_is_told() -> None:
    error = ConnectionError("Failed to connect to Ray cluster at h:1")
    error.__cause__ = RuntimeError("Unauthenticated: InvalidAuthToken")
    assert "RAY_AUTH_MODE=token" in _explained(error)
    error.__cause__ = None
    assert _explained(error).startswith("what answers there is no head node of Ray")


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
