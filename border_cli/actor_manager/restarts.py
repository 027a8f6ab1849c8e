"""The limit on restarts of a failing actor, and the pauses before them.

Each failure is logged with its traceback and followed by a pause, which starts at 0.1 s, doubles
with every failure up to 5 s, and is reset when samples are delivered. If a restarted actor, before
it delivers a sample, raises the same type of exception from the same lines as before, it is not
restarted again. The death of a process (a signal, a hang) may be random and counts only against
`max_restarts`.
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
_DOUBLINGS = 10  # enough to reach the longest pause; about 1000 would overflow a float

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in .*$', re.MULTILINE)
_RAISED = re.compile(r"^([\w.]+)(?:: |$)", re.MULTILINE)  # exception type, before its message
# Messages of environments that set signal handlers, open windows or use asyncio's loop.
_MAIN_THREAD = re.compile(r"\bmain thread\b|no current event loop in thread")
_OURS = str(Path(__file__).parents[1])

Origin: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  # type, (file, line) of each frame


def parse_origin(text: str) -> Origin | None:
    """Parses a traceback into the type of its exception and the frames outside border_cli.

    It works on text, because other processes report only text. Returns None if `text` is not a
    traceback.
    """
    if not text.startswith(_TRACEBACK):
        return None
    last = text.rpartition(_TRACEBACK)[2]  # the last exception of a chain
    frames = list(_FRAME.finditer(last))
    raised = _RAISED.search(last, frames[-1].end() if frames else 0)
    if raised is None:
        return None
    lines = [(frame[1], frame[2]) for frame in frames]
    external = [line for line in lines if not line[0].startswith(_OURS)]
    return raised[1], tuple(external or lines)


def as_failure(error: BaseException, source: str) -> RunFailed:
    """Wraps an error in a `RunFailed` that names its source, unless it already is one."""
    if isinstance(error, RunFailed):
        return error
    failure = RunFailed(f"{source} failed: {error!r}")
    failure.__cause__ = error
    return failure


class Restarts:
    """The restarts of one actor in this attempt; owned by the thread that restarts it."""

    def __init__(self, actor_id: int, most: int, *, renewed: bool = False) -> None:
        """`renewed`: whether delivered samples restore the restarts used for process deaths. The
        restarts used for exceptions are never restored."""
        self._actor_id = actor_id
        self._most = most
        self._renewed = renewed
        self._first_traceback: str | None = None
        self._delivered = 0  # samples delivered before the last failure
        self._since_delivery = 0  # failures since the last delivery
        self._last: Origin | None = None  # origin of the last failure; reset by deliveries
        self.count = 0
        self._spent = 0  # restarts that count against the limit
        self._raised = 0  # restarts within `_spent` that followed an exception

    def record_failure(self, text: str, *, delivered: int, where: str = "") -> float:
        """Records a failure and returns the seconds to pause before the restart.

        `text` is a traceback, or a description if the process died. `delivered` is the number of
        samples delivered by all incarnations so far. Raises `ActorCrashed` with the first traceback
        if no restarts are left, or if an incarnation delivered nothing and then raised the same
        exception from the same lines as the previous one, because a restart would not help.
        """
        if delivered > self._delivered:
            self._delivered = delivered
            self._since_delivery, self._last = 0, None
            if self._renewed:
                self._spent = self._raised
        self._first_traceback = self._first_traceback or text
        previous, self._last = self._last, parse_origin(text)
        if self._spent >= self._most:
            self._abort(f"no restarts are left (actor_manager.max_restarts={self._most})", where)
        if self._last is not None and self._last == previous:
            self._abort("the restarted actor failed the same way before delivering a sample", where)
        self.count += 1
        self._spent += 1
        self._raised += self._last is not None
        log.warning(
            "actor %d failed%s, restart %d of %d:\n%s",
            self._actor_id, where, self._spent, self._most, text,
        )  # fmt: skip
        delay_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0**self._since_delivery)
        self._since_delivery = min(self._since_delivery + 1, _DOUBLINGS)
        return delay_s

    def _abort(self, reason: str, where: str) -> NoReturn:
        log.error("actor %d failed%s and is not restarted", self._actor_id, where)
        first_traceback = self._first_traceback or ""
        if _MAIN_THREAD.search(first_traceback):
            reason += "; actor_manager=process and serial run it in a main thread"
        raise ActorCrashed(self._actor_id, reason, first_traceback)
