"""A head node that is gone is noticed."""

from __future__ import annotations

import socket
import threading

from border_cli.cluster.head import GONE_S, HeadWatch

ENDS_S = 30.0


def test_a_head_node_that_no_longer_answers_is_gone_and_one_that_does_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        gone = threading.Event()
        watch = HeadWatch([address], gone.set, look_s=0.001)
        answered, _ = head.accept()
        answered.close()
        again, _ = head.accept()  # it looks again and again
        again.close()
        assert not watch.gone
    assert gone.wait(ENDS_S)
    assert watch.gone == f"{address} does not answer for {GONE_S:g} s"
    watch.stop()


def test_a_watch_that_is_stopped_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        gone = threading.Event()
        watch = HeadWatch([f"ray://127.0.0.1:{head.getsockname()[1]}"], gone.set)
        watch.stop()
    assert not gone.is_set()
