"""Finds the part of a run that hangs, says where, and ends the run."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from border_cli.core.clock import Clock
from border_cli.core.errors import Stalled
from border_cli.core.stop import Heartbeat, StopFlag

log = logging.getLogger(__name__)

LEARNER_GRACE_S = 3.0  # within which a learner that is not hung notices the stop flag


class Watchdog:
    """A thread that touches neither environments nor torch; alive within its `with` block.

    A part that made no step for `timeout_s` while it waited for nobody is hung. When everybody
    waits for somebody and nothing moves, all are. The run is then asked to stop with `Stalled`,
    which carries the stacks of all threads. A learner that hangs itself cannot hear that: then
    `on_hung_learner` is called, in this thread.
    """

    def __init__(
        self,
        heartbeats: Sequence[Heartbeat],
        *,
        timeout_s: float,
        stop: StopFlag,
        clock: Clock,
        describe: Callable[[], str],
        on_hung_learner: Callable[[Stalled], None],
    ) -> None:
        self._heartbeats = heartbeats
        self._timeout_s = timeout_s
        self._stop = stop
        self._clock = clock
        self._describe = describe
        self._on_hung_learner = on_hung_learner
        self._ended = threading.Event()
        self._seen: dict[str, tuple[int, float]] = {}  # name -> beats, and since when
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(LEARNER_GRACE_S)

    def _run(self) -> None:
        while not self._ended.wait(min(1.0, self._timeout_s / 4)):
            stalled = self.look()
            if stalled is None:
                continue
            log.error("%s", stalled)
            self._stop.request(stalled)
            if not self._ended.wait(LEARNER_GRACE_S) and not self._stop.noticed:
                self._on_hung_learner(stalled)
            return

    def look(self) -> Stalled | None:
        """One look at everybody; the error if somebody hangs."""
        now_s = self._clock.now_s()
        still: list[Heartbeat] = []
        for heartbeat in self._heartbeats:
            beats, since_s = self._seen.get(heartbeat.name, (-1, now_s))
            if heartbeat.beats != beats:
                self._seen[heartbeat.name] = (heartbeat.beats, now_s)
            elif now_s - since_s >= self._timeout_s:
                still.append(heartbeat)
        guilty = [each for each in still if each.waiting_for is None]
        if not guilty and len(still) == len(self._heartbeats):
            guilty = still  # everybody waits for somebody
        return Stalled(self._report(guilty)) if guilty else None

    def _report(self, guilty: list[Heartbeat]) -> str:
        frames = sys._current_frames()
        names = ", ".join(each.name for each in guilty)
        lines = [f"no step for {self._timeout_s:g} s (trainer.stall_timeout_s): {names}"]
        for each in guilty:
            frame = frames.get(each.thread_id or 0)
            if frame is not None:
                lines.append(f"{each.name} is here:")
                lines.append("".join(traceback.format_stack(frame)).rstrip())
        for each in self._heartbeats:
            state = f"waits for {each.waiting_for}" if each.waiting_for else "works"
            lines.append(f"{each.name}: {each.beats:,} steps, {state}")
        lines.append(self._describe())
        shown = {each.thread_id for each in guilty}
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is not None and thread.ident not in shown:
                lines.append(f"thread {thread.name}:")
                lines.append("".join(traceback.format_stack(frame)).rstrip())
        return "\n".join(lines)
