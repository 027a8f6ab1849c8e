"""The process that hands the records of a run to a tracker: `python -m border_cli.recorder.deliver
RUN_DIR TRACKER [SECONDS]`.

Started by `tracking.py`, or typed for what was not delivered. It ends when its input is closed and
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
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from border_cli.recorder.tracking import outbox_of, state_of
from border_cli.run.status import KILLED, git_state
from border_cli.system.files import write_json

PAUSE_S, RETRY_S = 0.5, 2.0  # between two looks at the outbox, after a failure
MOST_NBYTES = 2**20  # of events that are read at a time
TYPED_S = 10.0  # how long one that is typed goes on trying

Event = dict[str, Any]


class Client(Protocol):
    """One run in a tracker. It is made with the `state`, and keeps ids for later attempts there."""

    def begin(self, attempt: int, facts: Event) -> None:
        """Creates the run, or goes on with it."""

    def rows(self, rows: list[Event]) -> None:
        """Rows of metrics; some may have been delivered before."""

    def file(self, path: Path, folder: str) -> None:
        """A file of the run."""

    def end(self, summary: Event) -> None:
        """The closing statistics, with `status` and `exit_reason`."""


class Delivery:
    """From the outbox to the tracker, in order; owned by the process's only thread."""

    def __init__(self, run_dir: Path, tracker: str) -> None:
        self._run_dir, self._tracker = run_dir, tracker
        self._outbox = outbox_of(run_dir, tracker)
        self._state = state_of(self._outbox)
        self._client: Client | None = None

    def step(self) -> bool:
        """Hands over what there is; whether there was anything."""
        with self._outbox.open("rb") as file:
            file.seek(self._state["delivered"])
            lines = [each for each in file.readlines(MOST_NBYTES) if each.endswith(b"\n")]
        events = [json.loads(line) | {"nbytes": len(line)} for line in lines]
        for kind, several in groupby(events, lambda each: str(each["kind"])):
            found = list(several)
            for each in [found] if kind == "row" else [[one] for one in found]:
                self._hand_over(kind, each)
                self._state["delivered"] += sum(one["nbytes"] for one in each)
                write_json(self._outbox.with_suffix(".json"), self._state)
        return bool(events)

    def _hand_over(self, kind: str, events: list[Event]) -> None:
        event, client = events[0], self._client
        if kind == "begin":
            git = git_state(Path.cwd()) or {}
            event["tags"] |= {f"git_{name}": str(value) for name, value in git.items()}
            self._state |= {"begun": event, "attempt": self._state["attempt"] + 1}
        if client is None or kind == "begin":
            module = importlib.import_module(f"border_cli.recorder.{self._tracker}")
            client = module.Client(self._state)
            client.begin(self._state["attempt"], self._state["begun"])
            client.file(self._run_dir / ".hydra" / "resolved.yaml", "settings")
            self._client = client
        if kind == "row":
            for each in events:
                each["metrics"]["attempt"] = self._state["attempt"]
            client.rows(events)
        elif kind == "file":
            client.file(self._run_dir / event["path"], event["folder"])
        elif kind == "end":
            summary = self._outbox.with_name("summary.json")
            write_json(summary, event["summary"])
            for path in (summary, *sorted((self._run_dir / "best").glob("*"))):
                client.file(path, path.parent.name)
            client.end(event["summary"])

    def forget(self) -> None:
        """After a failure: the tracker is opened anew, with what it had on the disk."""
        self._client, self._state = None, state_of(self._outbox)

    def record_killed(self) -> None:
        """Adds the end that the run could not record itself."""
        last = self._outbox.read_bytes().splitlines()[-1]
        if json.loads(last)["kind"] != "end":
            summary = {"status": "killed", "exit_reason": KILLED}
            with self._outbox.open("ab") as file:
                file.write(json.dumps({"kind": "end", "summary": summary}).encode() + b"\n")


def main(run_dir: Path, tracker: str, timeout_s: float | None) -> None:
    """Returns once there is nothing more to come, or it has given up."""
    os.nice(19)
    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what packages print goes to the log
    outbox = outbox_of(run_dir, tracker).open("rb")
    fcntl.flock(outbox, fcntl.LOCK_EX)  # the process of the attempt before may still be at it
    delivery, said = Delivery(run_dir, tracker), False
    deadline_s = None if timeout_s else time.monotonic() + TYPED_S
    while True:
        found, pause_s = True, 0.0
        try:
            found = delivery.step()
        except Exception as error:  # of a package, or its server: they raise whatever they like
            traceback.print_exc()
            delivery.forget()
            if not said:
                messages.write(f"not delivered for now; the run goes on: {error!r:.300}\n")
            said, pause_s = True, RETRY_S
        if deadline_s is not None:
            if not found or time.monotonic() > deadline_s:
                return
            time.sleep(pause_s)
        elif _is_closed(pause_s or (0 if found else PAUSE_S)):
            deadline_s = time.monotonic() + (timeout_s or 0)
            delivery.record_killed()


def _is_closed(timeout_s: float) -> bool:
    """Whether the other end of the input is closed; waits for that."""
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable) and not os.read(0, 1)


if __name__ == "__main__":
    _, place, name, *seconds = sys.argv
    main(Path(place), name, float(seconds[0]) if seconds else None)
