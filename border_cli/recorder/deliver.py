"""The process that delivers the records of a run to a tracker: `python -m
border_cli.recorder.deliver RUN_DIR TRACKER [SECONDS]`.

It is started by `tracking.py`, or by the user to deliver records that are still pending. It exits
when everything is delivered (and, if started by `tracking.py`, its stdin is closed), or when the
time is up. It loads neither torch nor Hydra.

Each tracker has a module of the same name, which imports the tracker's package and defines the
class in `RUNS`. An instance is a run in the tracker. Its arguments are the state (to which it adds
IDs for later attempts), facts about the run, and a function that saves the state.
`facts["init"]` contains arguments common to several packages.

After SIGTERM the process exits when it next saves its state: between two events, and before and
after opening a database. The exit status is 1 if records are still pending, and 2 after a refusal.

The run directory may come from another person. Only files that a run writes are sent, and none of
them can select a host, an account or a store.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import math
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from border_cli.errors import ConfigError
from border_cli.recorder.config import PROJECT, refuse_store_here
from border_cli.recorder.tracking import outbox_path, state_of
from border_cli.run.layout import SWEEP, refuse_foreign, written_files
from border_cli.run.provenance import git_state
from border_cli.run.status import KILLED, KILLED_REASON
from border_cli.run.sweep_folder import group_of
from border_cli.system.files import SETTINGS, write_json
from border_cli.system.printed import forward_output
from border_cli.words import escape_controls, mask_secrets

PAUSE_S, RETRY_S = 5.0, 2.0  # seconds to wait at the end of the outbox, and after a failure
MOST_NBYTES = 2**20  # maximum number of bytes of events per read
TYPED_S = 60.0  # time limit if the user typed the command
PRINTED_S = 1.0  # wait for remaining output; a child process may hold the pipe open
RUNS = {"mlflow": "MlflowRun", "trackio": "TrackioRun", "wandb": "WandbRun"}  # module -> class
ROW, END = b'{"kind": "row"', b'{"kind": "end"'


class Delivery:
    """Delivers events from the outbox to the tracker, in order; owned by the main thread."""

    def __init__(self, run_dir: Path, tracker: str) -> None:
        self._run_dir, self._tracker = run_dir, tracker
        self._outbox = outbox_path(run_dir, tracker)
        self.ends = False  # set by SIGTERM
        self.forget()

    def forget(self) -> None:
        """Drops the client and reads the state from disk again; called after a failure."""
        self._client: Any = None
        self._state = state_of(self._outbox)

    def step(self) -> bool:
        """Delivers the next event, or the consecutive rows among the next `MOST_NBYTES`; returns
        whether there was one."""
        with self._outbox.open("rb") as file:
            file.seek(self._state["delivered"])
            lines = [line for line in file.readlines(MOST_NBYTES) if line.endswith(b"\n")]
        events = list(takewhile(lambda line: line.startswith(ROW), lines)) or lines[:1]
        if events:
            self._deliver([json.loads(event) for event in events])
            self._state["delivered"] += sum(map(len, events))
            self._save_state()
        return bool(events)

    def _save_state(self) -> None:
        write_json(self._outbox.with_suffix(".json"), self._state)
        if self.ends:
            os._exit(1)

    def _deliver(self, events: list[dict[str, Any]]) -> None:
        event = events[0]
        if event["kind"] == "begin":
            git = git_state(Path.cwd()) or {}
            event["tags"] |= {f"git_{name}": value for name, value in git.items()}
            self._state["begun"], self._client = event, None
        if self._client is None:
            module = importlib.import_module(f"border_cli.recorder.{self._tracker}")
            run_class = getattr(module, RUNS[self._tracker])
            self._client = run_class(self._state, self._facts(), self._save_state)
            self._send([str(SETTINGS)], "settings")
        match event["kind"]:
            case "row":
                self._client.rows(events)
            case "film":
                self._send([event["path"]], "films")
            case "end":
                summary = self._outbox.with_name("summary.json")
                write_json(summary, event["summary"])
                self._send([str(summary.relative_to(self._run_dir))], "trackers")
                self._send(self._files_of_best(), "best")
                self._client.end(event["summary"])

    def _facts(self) -> dict[str, Any]:
        """Returns what the client needs to describe the run."""
        begun, group = self._state["begun"], group_of(self._run_dir)
        init = {
            "name": begun["name"],
            "group": group and group.name,
            "config": {**begun["settings"], **begun["tags"]},
            "resume": "allow",
        }
        project = begun["project"] if PROJECT.fullmatch(str(begun["project"])) else None
        return {**begun, "project": project, "group": group, "init": init}

    def _send(self, names: Iterable[str], folder: str) -> None:
        """Sends the files `names` (paths in the run), except those that no run writes."""
        written = written_files(self._run_dir)
        for name in names:
            if name in written:
                self._client.file(self._run_dir / name, folder)

    def _files_of_best(self) -> Iterator[str]:
        """Yields the files of the best model, by their paths in the run."""
        for path in sorted((self._run_dir / "best").resolve().glob("*")):
            name = os.path.relpath(path, self._run_dir.resolve())
            if name.startswith("checkpoints/best-"):
                yield name

    def record_killed(self) -> None:
        """Appends the end event if the run was killed before it could write it."""
        with self._outbox.open("rb+") as file:
            if not file.readlines()[-1].startswith(END):
                summary = {"status": KILLED, "exit_reason": KILLED_REASON}
                file.write(json.dumps({"kind": "end", "summary": summary}).encode() + b"\n")


def main(run_dir: Path, tracker: str, timeout_s: float | None = None) -> bool:
    """Delivers until the run has ended or the time is up; returns whether everything was delivered.
    `timeout_s` is None if the user typed the command."""
    refuse_store_here(tracker)
    refuse_foreign(run_dir)
    if group := group_of(run_dir):
        refuse_foreign(group, SWEEP)
    os.nice(19)
    messages = os.dup(1 if timeout_s else 2)
    outbox = outbox_path(run_dir, tracker).open("rb")
    with suppress(OSError):  # a file system without locks
        fcntl.flock(outbox, fcntl.LOCK_EX)  # the previous attempt may still be delivering
    stderr = os.dup(2)
    printed = forward_output(lambda line: os.write(stderr, mask_secrets(line).encode()))
    delivery = Delivery(run_dir, tracker)
    signal.signal(signal.SIGTERM, lambda *_: setattr(delivery, "ends", True))
    try:
        return _run_delivery(delivery, messages, timeout_s)
    finally:
        os.dup2(messages, 1)
        os.dup2(stderr, 2)
        printed.join(PRINTED_S)


def _run_delivery(delivery: Delivery, messages: int, timeout_s: float | None) -> bool:
    reported = False
    end_s = math.inf if timeout_s else time.monotonic() + TYPED_S
    while time.monotonic() < end_s and not delivery.ends:
        try:
            pause_s = 0 if delivery.step() else PAUSE_S
        except ConfigError:
            raise
        except Exception as error:  # the tracker's package or server may raise anything
            if timeout_s or not reported:
                traceback.print_exc()
            delivery.forget()
            if not reported:
                message = f"not delivered for now: {error!r:.300}\n"
                os.write(messages, mask_secrets(message).encode())
            reported, pause_s = True, RETRY_S
        if end_s < math.inf and pause_s == PAUSE_S:
            return True
        if end_s < math.inf:
            time.sleep(max(0.0, min(pause_s, end_s - time.monotonic())))
        elif select.select([0], [], [], pause_s)[0]:  # stdin is readable only once closed
            end_s = time.monotonic() + (timeout_s or 0)
            delivery.record_killed()
    return False


if __name__ == "__main__":
    _, run_path, name, *seconds = sys.argv
    try:
        sys.exit(not main(Path(run_path).absolute(), name, *map(float, seconds)))
    except ConfigError as error:
        (sys.stdout if seconds else sys.stderr).write(f"{escape_controls(str(error))}\n")
        sys.exit(error.exit_status)
