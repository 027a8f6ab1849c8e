"""The thread that listens to the broker, with a broker that is a small fake."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

import pytest

from border_cli.ray.broker import JOINED
from border_cli.ray.connection import ClusterSettings
from border_cli.ray.manager import _Listener
from border_cli.system.shared_memory import WakePipe


class KilledBroker:
    """A broker that joined a Ray whose head node no longer answers, and was then killed."""

    refusal = None
    starting = False
    alive = False

    def __init__(self, address: str) -> None:
        self.inbox: deque[tuple[Any, ...]] = deque([(JOINED, ClusterSettings(address=address))])

    def listen(self) -> None:
        pass

    def reap(self) -> str:
        return "its process was killed by SIGKILL"


@pytest.mark.parametrize(
    ("own", "cause"),
    [(True, "the Ray broker failed: its process was killed"), (False, "the head node .* is gone")],
)
def test_a_broker_that_was_killed_is_not_mistaken_for_a_lost_head_node(
    own: bool, cause: str
) -> None:
    pipe = WakePipe()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        listener = _Listener(pipe, own=own)
        broker: Any = KilledBroker(address)
        listener._listen(broker)
        listener.start(broker)
        assert listener._thread is not None
        listener._thread.join()
    pipe.close()
    assert listener.crash is not None
    with pytest.raises(Exception, match=cause):
        raise listener.crash
