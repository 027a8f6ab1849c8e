"""Notices that the head node of a cluster is gone, sooner than Ray does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final

from border_cli.cluster.connection import CLIENT

LOOK_S: Final = 1.0
GONE_S: Final = 6.0  # without an answer; Ray itself waits for 60 s, then ends the process


class HeadWatch:
    """A thread that looks whether the head node answers, until it is stopped."""

    def __init__(
        self, address: str, on_gone: Callable[[], None], *, look_s: float = LOOK_S
    ) -> None:
        host, _, port = address.removeprefix(CLIENT).rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._on_gone = on_gone
        self._look_s = look_s
        self._stopped = threading.Event()
        self.gone = False
        self._thread = threading.Thread(target=self._run, name="head watch", daemon=True)
        self._thread.start()

    @property
    def what(self) -> str:
        """What it found, in words."""
        host, port = self._place
        return f"{host}:{port} does not answer for {GONE_S:g} s"

    def _run(self) -> None:
        failures = 0
        while not self._stopped.wait(self._look_s):
            failures = 0 if self._answers() else failures + 1
            if failures * LOOK_S >= GONE_S:
                self.gone = True
                self._on_gone()
                return

    def _answers(self) -> bool:
        try:
            socket.create_connection(self._place, timeout=LOOK_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self._thread.join(2 * LOOK_S)
