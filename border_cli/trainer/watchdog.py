"""Finds the part of a run that hangs, reports where, and ends the run.

It logs all stacks, that of the part that hangs first, and requests a stop. If the learner itself
hangs, the command writes `run.json` and exits with status 1; `train`, if called in the main thread,
is interrupted and raises `Stalled`.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from border_cli.core.stop import Pulse, StopFlag
from border_cli.errors import Stalled

log = logging.getLogger(__name__)

LEARNER_GRACE_S = 3.0  # within which a learner that is not hung notices the stop flag
WAY_OUT_S = 10.0  # within which a learner that noticed has stopped the actors and saved


class Watchdog:
    """A thread that touches neither environments nor torch; alive within its `with` block.

    A part that made no step for `timeout_s` and does not wait for another is hung, and is replaced
    where that is possible. Where all parts wait and nothing moves, all are hung. The run is then
    asked to stop with `Stalled`, which carries the stacks of all threads. A learner that hangs does
    not notice that, or hangs on its way out: then `on_hung_learner` is called, in this thread.
    """

    def __init__(
        self,
        heartbeats: Sequence[Pulse],
        *,
        timeout_s: float,
        stop: StopFlag,
        on_hung_learner: Callable[[Stalled], None],
        learner_grace_s: float = LEARNER_GRACE_S,
        way_out_s: float = WAY_OUT_S,
    ) -> None:
        self._heartbeats = heartbeats
        self._timeout_s = timeout_s
        self._stop = stop
        self._on_hung_learner = on_hung_learner
        self._learner_grace_s = learner_grace_s
        self._way_out_s = way_out_s
        self._ended = threading.Event()
        self._pause_s = min(1.0, timeout_s / 4)
        # name -> beats, and checks since they changed: where the process is stopped, none is made
        self._seen: dict[str, tuple[int, int]] = {}
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
        self._thread.join(self._learner_grace_s)

    def _run(self) -> None:
        while not self._ended.wait(self._pause_s):
            stalled = self.check()
            if stalled is None:
                continue
            log.error("%s", stalled)
            self._stop.request(stalled)
            if not self._ends():
                self._on_hung_learner(stalled)
            return

    def _ends(self) -> bool:
        """Whether the learner leaves the block after it was asked to stop."""
        if self._ended.wait(self._learner_grace_s):
            return True
        # A save, or whatever it does on its way out, may take as long as any step.
        return self._stop.noticed and self._ended.wait(self._timeout_s + self._way_out_s)

    def check(self) -> Stalled | None:
        """Checks all parts, as it does after every pause; the error if one hangs."""
        still: list[Pulse] = []
        hung: list[Pulse] = []
        for part in self._heartbeats:
            # In this order: a part beats before it is seen at work again after a wait.
            waits, beats = part.waiting_for is not None, part.beats
            before, checks = self._seen.get(part.name, (beats, -1))
            checks = checks + 1 if beats == before else 0
            self._seen[part.name] = (beats, checks)
            if checks * self._pause_s >= self._timeout_s:
                still.append(part)
                hung += [] if waits else [part]
        if len(still) == len(self._heartbeats) and not hung:
            hung = still  # all parts wait for each other
        else:
            hung = [each for each in hung if not self._restarted(each)]
        return Stalled(self._report(hung)) if hung else None

    def _restarted(self, part: Pulse) -> bool:
        """Whether a hung part is being replaced; its first step may take as long as any other."""
        if not part.restart():
            return False
        del self._seen[part.name]
        return True

    def _report(self, hung: list[Pulse]) -> str:
        """Who hangs, and the stacks of all threads, with theirs first."""
        frames, first = sys._current_frames(), {each.thread_id for each in hung}
        threads = sorted(threading.enumerate(), key=lambda each: each.ident not in first)
        waits = [f" (waiting for {each.waiting_for})" if each.waiting_for else "" for each in hung]
        names = ", ".join(each.name + wait for each, wait in zip(hung, waits, strict=True))
        lines = [f"no step for {self._timeout_s:g} s (trainer.stall_timeout_s): {names}"]
        for thread in threads:
            if thread.ident in frames and thread is not self._thread:
                stack = "".join(traceback.format_stack(frames[thread.ident])).rstrip()
                lines.append(f"thread {thread.name}:\n{stack}")
        return "\n".join(lines)
