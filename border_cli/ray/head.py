"""Notices that the head node of a cluster is gone, sooner than Ray does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from border_cli.ray.connection import CLIENT, unanswered

LOOK_S: Final = 1.0
GONE_S: Final = 6.0  # without an answer; Ray itself waits for 60 s, then ends the process


class HeadWatch:
    """A thread that looks whether the head node answers, until it is stopped, and calls `on_gone`
    with what it found where it does not."""

    def __init__(
        self, address: str, on_gone: Callable[[str], object], *, look_s: float = LOOK_S
    ) -> None:
        self._address = address
        self._on_gone = on_gone
        self._look_s = look_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.wait(self._look_s):
            failures = failures + 1 if unanswered(self._address, LOOK_S) else 0
            if failures * LOOK_S >= GONE_S:
                server = self._address.removeprefix(CLIENT)
                self._on_gone(f"{server} does not answer for {GONE_S:g} s")
                return

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self._thread.join(2 * LOOK_S)
