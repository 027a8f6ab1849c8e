"""Detects a hung part of a run, reports where it hangs, and ends the run.

The watchdog logs all stacks, that of the hung part first, and requests a stop. If the learner
itself hangs, the command writes `run.json` and exits with status 1; a call of `train` in the main
thread is interrupted and raises `Stalled`.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Self

from border_cli.core.stop import MonitoredPart, StopFlag
from border_cli.errors import Stalled

log = logging.getLogger(__name__)

LEARNER_GRACE_S = 3.0  # time for a learner that is not hung to notice the stop flag
WAY_OUT_S = 10.0  # time for a learner that has noticed it to stop the actors and save


class Watchdog:
    """A thread that checks heartbeats within its `with` block.

    It uses neither environments nor torch. A part is hung if it makes no step for `timeout_s` and
    waits for no other; it is replaced if possible. If all parts wait and none makes a step, all are
    hung. The watchdog then requests a stop with `Stalled`, which contains all stacks. If the
    learner does not react, or hangs while it stops, `on_hung_learner` is called in this thread.
    """

    def __init__(
        self,
        heartbeats: Sequence[MonitoredPart],
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
        # name -> beats, and checks since they changed (none while the process is suspended)
        self._seen: dict[str, tuple[int, int]] = {}
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
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
        """Returns whether the learner stops in time after the request."""
        if self._ended.wait(self._learner_grace_s):
            return True
        # Saving, or any other part of a shutdown, may take as long as any step.
        return self._stop.noticed and self._ended.wait(self._timeout_s + self._way_out_s)

    def check(self) -> Stalled | None:
        """Checks all parts once; returns an error if one is hung."""
        motionless: list[MonitoredPart] = []
        hung: list[MonitoredPart] = []
        for part in self._heartbeats:
            # Read in this order, because a part counts a beat before it ends its wait.
            waits, beats = part.waiting_for is not None, part.beats
            last_beats, checks = self._seen.get(part.name, (beats, -1))
            checks = checks + 1 if beats == last_beats else 0
            self._seen[part.name] = (beats, checks)
            if checks * self._pause_s >= self._timeout_s:
                motionless.append(part)
                hung += [] if waits else [part]
        if len(motionless) == len(self._heartbeats) and not hung:
            hung = motionless  # all parts wait for each other
        else:
            hung = [stuck for stuck in hung if not self._restart(stuck)]
        return Stalled(self._report(hung)) if hung else None

    def _restart(self, part: MonitoredPart) -> bool:
        """Replaces a hung part, if possible; its first step may take as long as any other."""
        if not part.restart():
            return False
        del self._seen[part.name]
        return True

    def _report(self, hung: list[MonitoredPart]) -> str:
        """Returns the names of the hung parts, and the stacks of all threads, theirs first."""
        frames, hung_threads = sys._current_frames(), {part.thread_id for part in hung}
        threads = sorted(threading.enumerate(), key=lambda entry: entry.ident not in hung_threads)
        waits = [f" (waiting for {part.waiting_for})" if part.waiting_for else "" for part in hung]
        names = ", ".join(part.name + wait for part, wait in zip(hung, waits, strict=True))
        lines = [f"no step for {self._timeout_s:g} s (trainer.stall_timeout_s): {names}"]
        for thread in threads:
            if thread.ident in frames and thread is not self._thread:
                stack = "".join(traceback.format_stack(frames[thread.ident])).rstrip()
                lines.append(f"thread {thread.name}:\n{stack}")
        return "\n".join(lines)
