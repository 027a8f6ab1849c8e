"""How often an actor may fail, and how long it pauses before it is restarted.

Each failure is logged with its traceback and followed by a pause of 0.1 s that doubles up to 5 s
and is reset when samples are delivered. A run ends immediately if a restarted actor, before it
delivers a sample, raises the same type of exception through the same lines as before. The death of
a process (a signal, a hang) is not an exception and always uses `max_restarts`.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import NoReturn, TypeAlias

from border_cli.errors import ActorCrashed, RunFailed

log = logging.getLogger(__name__)

FIRST_BACK_OFF_S = 0.1
LONGEST_BACK_OFF_S = 5.0
_DOUBLINGS = 10  # more than enough for the longest; some hundred more and a float overflows

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in .*$', re.MULTILINE)
_RAISED = re.compile(r"^([\w.]+)(?:: |$)", re.MULTILINE)  # the type, in front of the message
# Of environments that set signal handlers, open windows, or use asyncio's loop
_MAIN_THREAD = re.compile(r"\bmain thread\b|no current event loop in thread")
_OURS = str(Path(__file__).parents[1])

Origin: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  # type; file and line of each frame


def origin(text: str) -> Origin | None:
    """The type of exception of a traceback, and the lines of others' code that raised it.

    From a text, because that is all that comes from another process. None if it is no traceback.
    """
    if not text.startswith(_TRACEBACK):
        return None
    last = text.rpartition(_TRACEBACK)[2]  # of a chain: what was raised in the end
    frames = list(_FRAME.finditer(last))
    raised = _RAISED.search(last, frames[-1].end() if frames else 0)
    if raised is None:
        return None
    lines = [(frame[1], frame[2]) for frame in frames]
    others = [each for each in lines if not each[0].startswith(_OURS)]
    return raised[1], tuple(others or lines)


def as_failure(error: BaseException, who: str) -> RunFailed:
    """For which the run ends: the error, or that it came from there."""
    if isinstance(error, RunFailed):
        return error
    failure = RunFailed(f"{who} failed: {error!r}")
    failure.__cause__ = error
    return failure


class Restarts:
    """The restarts of one actor in this attempt; owned by the thread that restarts it."""

    def __init__(self, actor_id: int, most: int, *, renewed: bool = False) -> None:
        """`renewed`: an actor that delivers samples has those again that deaths had used; what its
        own code raises uses them up for good."""
        self._actor_id = actor_id
        self._most = most
        self._renewed = renewed
        self._first_traceback: str | None = None
        self._delivered = 0  # samples until the failure before
        self._since_delivery = 0  # failures
        self._last: Origin | None = None  # of the failure before, if nothing was delivered since
        self.made = 0
        self._spent = 0  # of those that are allowed
        self._raised = 0  # of these, for exceptions

    def failed(self, text: str, *, delivered: int, where: str = "") -> float:
        """Takes the traceback of a failure; returns the seconds to pause before the restart.

        `delivered` are the samples that arrived from all incarnations so far. Raises `ActorCrashed`
        with the first traceback once no restarts are left, or where an incarnation delivered
        nothing and then raised what the one before had raised in the same line: another one would,
        too. The death of a process comes with a text that is no traceback; it may be chance, and
        only the number of restarts limits it.
        """
        if delivered > self._delivered:
            self._delivered = delivered
            self._since_delivery, self._last = 0, None
            if self._renewed:
                self._spent = self._raised
        self._first_traceback = self._first_traceback or text
        last, self._last = self._last, origin(text)
        if self._spent >= self._most:
            self._end(f"no restarts are left (actor_manager.max_restarts={self._most})", where)
        if self._last is not None and self._last == last:
            self._end("the restarted actor failed the same way before delivering a sample", where)
        self.made += 1
        self._spent += 1
        self._raised += self._last is not None
        log.warning(
            "actor %d failed%s, restart %d of %d:\n%s",
            self._actor_id, where, self._spent, self._most, text,
        )  # fmt: skip
        delay_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0**self._since_delivery)
        self._since_delivery = min(self._since_delivery + 1, _DOUBLINGS)
        return delay_s

    def _end(self, why: str, where: str) -> NoReturn:
        log.error("actor %d failed%s and is not restarted", self._actor_id, where)
        first = self._first_traceback or ""
        if _MAIN_THREAD.search(first):
            why += "; actor_manager=process and serial run it in a main thread"
        raise ActorCrashed(self._actor_id, why, first)
