"""The process that hands the records of a run to a tracker: `python -m border_cli.recorder.deliver
RUN_DIR TRACKER [SECONDS]`.

Started by `tracking.py`, or typed for what was not delivered. It ends when its input is closed and
all is delivered, or the seconds are over. It loads neither torch nor Hydra; a tracker's own package
is imported by the module of its name, whose class in `RUNS` is one run there: it is made with the
state, where it stores ids for later attempts, with facts about the run, and with a function that
writes the state, and takes `rows`, a `file`, and at last the `end`. Among the facts is `init`,
arguments that several packages share.

SIGTERM ends the process where its state is written: between two events, and before and after a
database is opened. Its status is 1 where not all is delivered, and 2 after a refusal.

The run directory may be somebody else's. Only files that a run writes are sent, and no file in it
chooses a host, an account or a store.
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
from itertools import takewhile
from pathlib import Path
from typing import Any

from border_cli.errors import ConfigError
from border_cli.recorder.config import PROJECT, refuse_store_here
from border_cli.recorder.tracking import outbox_of, state_of
from border_cli.run.layout import SWEEP, refuse_foreign, written_files
from border_cli.run.provenance import git_state
from border_cli.run.status import KILLED
from border_cli.run.sweep_folder import group_of
from border_cli.system.files import SETTINGS, write_json
from border_cli.system.printed import take_printed
from border_cli.words import masked, visible

PAUSE_S, RETRY_S = 5.0, 2.0  # between two looks at the outbox, after a failure
MOST_NBYTES = 2**20  # of events that are read at a time
TYPED_S = 60.0  # how long one that is typed goes on trying
PRINTED_S = 1.0  # for the rest of what was printed; a child may keep the pipe open
RUNS = {"mlflow": "MlflowRun", "trackio": "TrackioRun", "wandb": "WandbRun"}  # in their modules
ROW, END = b'{"kind": "row"', b'{"kind": "end"'


class Delivery:
    """From the outbox to the tracker, in order; owned by the main thread."""

    def __init__(self, run_dir: Path, tracker: str) -> None:
        self._run_dir, self._tracker = run_dir, tracker
        self._outbox = outbox_of(run_dir, tracker)
        self.ends = False  # after a SIGTERM
        self.forget()

    def forget(self) -> None:
        """After a failure the tracker is opened anew, with what is on the disk."""
        self._client: Any = None
        self._state = state_of(self._outbox)

    def step(self) -> bool:
        """Hands over an event, or rows that follow each other; whether there was anything."""
        with self._outbox.open("rb") as file:
            file.seek(self._state["delivered"])
            lines = [each for each in file.readlines(MOST_NBYTES) if each.endswith(b"\n")]
        found = list(takewhile(lambda each: each.startswith(ROW), lines)) or lines[:1]
        if found:
            self._hand_over([json.loads(each) for each in found])
            self._state["delivered"] += sum(map(len, found))
            self._keep()
        return bool(found)

    def _keep(self) -> None:
        write_json(self._outbox.with_suffix(".json"), self._state)
        if self.ends:
            os._exit(1)

    def _hand_over(self, events: list[dict[str, Any]]) -> None:
        event = events[0]
        if event["kind"] == "begin":
            git = git_state(Path.cwd()) or {}
            event["tags"] |= {f"git_{name}": value for name, value in git.items()}
            self._state["begun"], self._client = event, None
        if self._client is None:
            module = importlib.import_module(f"border_cli.recorder.{self._tracker}")
            run_there = getattr(module, RUNS[self._tracker])
            self._client = run_there(self._state, self._facts(), self._keep)
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
        """What a client is told of the run."""
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
        """Hands over those files of the run that it has written, by their paths there."""
        written = written_files(self._run_dir)
        for name in names:
            if name in written:
                self._client.file(self._run_dir / name, folder)

    def _files_of_best(self) -> Iterator[str]:
        """The files of the best model, by their paths in the run."""
        for path in sorted((self._run_dir / "best").resolve().glob("*")):
            name = os.path.relpath(path, self._run_dir.resolve())
            if name.startswith("checkpoints/best-"):
                yield name

    def record_killed(self) -> None:
        """Adds the end that the run could not record itself."""
        with self._outbox.open("rb+") as file:
            if not file.readlines()[-1].startswith(END):
                summary = {"status": "killed", "exit_reason": KILLED}
                file.write(json.dumps({"kind": "end", "summary": summary}).encode() + b"\n")


def main(run_dir: Path, tracker: str, timeout_s: float | None = None) -> bool:
    """Returns once there is nothing more to come, or it has given up; whether all is delivered.
    Without `timeout_s` it was typed."""
    refuse_store_here(tracker)
    refuse_foreign(run_dir)
    if group := group_of(run_dir):
        refuse_foreign(group, SWEEP)
    os.nice(19)
    messages = os.dup(1 if timeout_s else 2)
    outbox = outbox_of(run_dir, tracker).open("rb")
    fcntl.flock(outbox, fcntl.LOCK_EX)  # the process of the attempt before may still be at it
    stderr = os.dup(2)
    printed = take_printed(lambda line: os.write(stderr, masked(line).encode()))
    delivery = Delivery(run_dir, tracker)
    signal.signal(signal.SIGTERM, lambda *_: setattr(delivery, "ends", True))
    try:
        return _deliver(delivery, messages, timeout_s)
    finally:
        os.dup2(messages, 1)
        os.dup2(stderr, 2)
        printed.join(PRINTED_S)


def _deliver(delivery: Delivery, messages: int, timeout_s: float | None) -> bool:
    said = False
    end_s = math.inf if timeout_s else time.monotonic() + TYPED_S
    while time.monotonic() < end_s and not delivery.ends:
        try:
            pause_s = 0 if delivery.step() else PAUSE_S
        except ConfigError:
            raise
        except Exception as error:  # of a package, or its server: they raise whatever they like
            if timeout_s or not said:
                traceback.print_exc()
            delivery.forget()
            if not said:
                why = f"not delivered for now: {error!r:.300}\n"
                os.write(messages, masked(why).encode())
            said, pause_s = True, RETRY_S
        if end_s < math.inf and pause_s == PAUSE_S:
            return True
        if end_s < math.inf:
            time.sleep(max(0.0, min(pause_s, end_s - time.monotonic())))
        elif select.select([0], [], [], pause_s)[0]:  # closed: nothing is ever written there
            end_s = time.monotonic() + (timeout_s or 0)
            delivery.record_killed()
    return False


if __name__ == "__main__":
    _, place, name, *seconds = sys.argv
    try:
        sys.exit(not main(Path(place).absolute(), name, *map(float, seconds)))
    except ConfigError as error:
        (sys.stdout if seconds else sys.stderr).write(f"{visible(str(error))}\n")
        sys.exit(error.exit_status)
