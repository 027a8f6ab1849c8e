"""The process that hands the records of a run to a tracker: `python -m border_cli.recorder.deliver
RUN_DIR TRACKER [SECONDS]`.

Started by `tracking.py`, or typed for what was not delivered. It ends once its input is closed and
all is delivered, or the seconds are over. It loads neither torch nor Hydra; a tracker's own package
is imported by the class of its name.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import select
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from border_cli.recorder.tracking import delivered, outbox_of
from border_cli.run.status import KILLED, git_state
from border_cli.system.files import write_json

PAUSE_S = 0.5  # between two looks at the outbox
RETRY_S = 2.0  # after a failure
MOST_NBYTES = 2**20  # of events that are delivered at a time
WITHOUT_END_S = 10.0  # for one that is typed


class Tracker(Protocol):
    """A client of one tracker; `state` is kept for later attempts of the run."""

    def begin(self, attempt: int, facts: dict[str, Any]) -> None:
        """Creates the run, or goes on with it."""

    def rows(self, attempt: int, rows: Sequence[dict[str, Any]]) -> None:
        """Rows of metrics; delivering some twice must change nothing."""

    def artifact(self, path: Path, folder: str) -> None:
        """A file of the run."""

    def end(self, facts: dict[str, Any]) -> None:
        """How an attempt ended."""


class Delivery:
    """From the outbox to the tracker, in order; owned by the process's only thread."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._run_dir, self._name = run_dir, name
        self._outbox = outbox_of(run_dir, name)
        self._state_file = self._outbox.with_suffix(".json")
        self.state = {"delivered": 0, "attempt": 0, **delivered(run_dir, name)}
        self._tracker: Tracker | None = None
        self._begun: dict[str, Any] = self.state.get("begun", {})

    @property
    def left(self) -> list[dict[str, Any]]:
        """The next events."""
        with self._outbox.open("rb") as file:
            file.seek(self.state["delivered"])
            lines = [each for each in file.readlines(MOST_NBYTES) if each.endswith(b"\n")]
        return [json.loads(line) | {"nbytes": len(line)} for line in lines]

    def deliver(self, events: Sequence[dict[str, Any]]) -> None:
        """Hands events over; after each that is not a row, and after rows together, it remembers."""
        for kind, several in groupby(events, lambda each: each["kind"]):
            found = list(several)
            for each in [found] if kind == "row" else [[one] for one in found]:
                self._hand_over(kind, each)
                self.state["delivered"] += sum(one["nbytes"] for one in each)
                write_json(self._state_file, self.state)

    def _hand_over(self, kind: str, events: list[dict[str, Any]]) -> None:
        event, state = events[0], self.state
        if kind == "begin":
            state["begun"] = event | {"git": git_state(Path.cwd())}
            tracker = self._opened()
            tracker.begin(state["attempt"] + 1, state["begun"])
            state["attempt"] += 1
            tracker.artifact(self._run_dir / ".hydra" / "resolved.yaml", "settings")
            return
        tracker = self._opened()
        if kind == "row":
            tracker.rows(state["attempt"], events)
        elif kind == "film":
            tracker.artifact(self._run_dir / event["path"], "films")
        else:
            for each in sorted((self._run_dir / "best").glob("*")):
                tracker.artifact(each, "best")
            summary = self._outbox.with_name("summary.json")
            write_json(summary, event)
            tracker.artifact(summary, "summary")
            tracker.end(event)

    def _opened(self) -> Tracker:
        if self._tracker is None:
            module = importlib.import_module(f"border_cli.recorder.{self._name}")
            opened: Tracker = module.Client(self.state)
            self._tracker = opened
            if self.state["attempt"] and self._begun:  # an earlier process had begun it
                opened.begin(self.state["attempt"], self._begun)
        return self._tracker

    def forget(self) -> None:
        """After a failure: the next delivery opens the tracker anew."""
        self._tracker = None
        self._begun = self.state.get("begun", {})

    def record_killed(self) -> None:
        """Adds the end that the run could not record itself."""
        last = self._outbox.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        if json.loads(last)["kind"] != "end":
            facts = {"status": "killed", "reason": KILLED, "summary": {}}
            with self._outbox.open("ab") as file:
                file.write(json.dumps({"kind": "end", "at": time.time(), **facts}).encode() + b"\n")


def main(run_dir: Path, name: str, timeout_s: float | None) -> None:
    """Delivers until there is nothing more to come; returns when it is done, or given up."""
    os.nice(19)
    outbox = outbox_of(run_dir, name).open("rb")
    fcntl.flock(outbox, fcntl.LOCK_EX)  # that of the attempt before may still be at it
    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what packages print goes to the log
    delivery, said, deadline_s = Delivery(run_dir, name), False, float("inf")
    if timeout_s is None:  # it was typed, and nothing more comes
        deadline_s = time.monotonic() + WITHOUT_END_S
    while True:
        events = delivery.left
        try:
            delivery.deliver(events)
        except Exception as error:  # of a package, or its server: they raise whatever they like
            traceback.print_exc()  # into the log
            delivery.forget()
            if not said:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                messages.write(f"not delivered for now, the run goes on: {reason}\n")
            said, events = True, []
            _closed(RETRY_S)
        if timeout_s and deadline_s == float("inf") and _closed(0 if events else PAUSE_S):
            deadline_s = time.monotonic() + timeout_s
            delivery.record_killed()
        elif deadline_s < float("inf") and (not delivery.left or time.monotonic() > deadline_s):
            return


def _closed(timeout_s: float) -> bool:
    """Whether the other end of the input is closed, after waiting for that."""
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable) and not os.read(0, 1)


if __name__ == "__main__":
    _, place, tracker, *seconds = sys.argv
    main(Path(place), tracker, float(seconds[0]) if seconds else None)
