"""A head node that is gone is noticed."""

from __future__ import annotations

import queue
import socket

from border_cli.ray.head import GONE_S, HeadWatch

ENDS_S = 30.0


def test_a_head_node_that_no_longer_answers_is_gone_and_one_that_does_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        found: queue.Queue[str] = queue.Queue()
        watch = HeadWatch(address, found.put, look_s=0.001)
        answered, _ = head.accept()
        answered.close()
        again, _ = head.accept()  # it looks again and again
        again.close()
        assert found.empty()
    assert found.get(timeout=ENDS_S) == f"{address} does not answer for {GONE_S:g} s"
    watch.stop()


def test_a_watch_that_is_stopped_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        found: queue.Queue[str] = queue.Queue()
        watch = HeadWatch(f"ray://127.0.0.1:{head.getsockname()[1]}", found.put)
        watch.stop()
    assert found.empty()
