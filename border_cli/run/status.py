"""The progress and the outcome of a run: `run.json`."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from border_cli.errors import RunDeleted
from border_cli.run.lock import RunLock, running
from border_cli.run.provenance import git_state, machine, versions
from border_cli.system.files import read_bytes_or_empty, write_json

log = logging.getLogger(__name__)


RUN_JSON = "run.json"
DONE = "done"  # status of a run that has reached a limit
LOST, NOT_STARTED = "lost", "not started"  # status without a record: the run has started or not
SKIPPED = "skipped"  # status of a refused job, in a sweep that skips such jobs
KILLED = "killed"  # status of a run whose process ended without recording an end
KILLED_REASON = "its process was killed, or its machine went down"


# Entries that a resumed run keeps from earlier attempts.
EPISODE_LIMIT = "evaluation_episode_limit"  # in env steps; present if the run chose it
LASTING = (
    EPISODE_LIMIT,
    "started",
    "seeds",
    "settings",
    "import_paths",
    "best_score",
    "best_opt_steps",
    "final_score",
    "env_steps",
    "samples_total",
)


class RunRecord:
    """The document `run.json` of one attempt of a run, rewritten completely at every change.

    `status` is running, done, failed, interrupted or skipped; `read_run` also returns killed. Owned
    by one thread, within a `RunLock`; if it hangs, the watchdog's thread calls `end`. Before
    `begin`, nothing is written and the document of the previous attempt stays valid. `begin` raises
    `OSError`. After it, a full disk is logged or, for `progress`, ignored, and a deleted run raises
    `RunDeleted`.
    """

    def __init__(
        self, run_dir: Path, *, check_lock: Callable[[], None] = lambda: None, **facts: Any
    ) -> None:
        """`check_lock` is called before each change after `begin`; raises if the lock is lost."""
        self._run_dir = run_dir
        self._check_lock = check_lock
        self._facts = facts
        self.content: dict[str, Any] = {}

    @property
    def begun(self) -> bool:
        return bool(self.content)

    @property
    def _is_running(self) -> bool:
        return self.content.get("status") == "running"

    def begin(self, from_opt_steps: int | None = None) -> None:
        """Writes the document of a new run. With `from_opt_steps`, the run resumes from a
        checkpoint: entries in `LASTING` are kept from the previous document, unless `facts`
        contains them."""
        # imported late: a list of runs does not need it
        import psutil

        facts, started = self._facts, now()
        process = {"pid": os.getpid(), "host": platform.node()}
        attempt = {
            "started": started,
            "from_opt_steps": from_opt_steps or 0,
            "command": facts.get("command"),
            **process,
        }
        content = {
            "status": "running",
            "exit_reason": None,
            **process,
            "process_start": str(psutil.Process().create_time()),  # seconds since 1970
            "started": started,
            "ended": None,
            "best_score": None,
            "best_opt_steps": None,
            "final_score": None,
            "opt_steps": 0,
            "env_steps": 0,
            "samples_total": 0,
            **facts,
            "attempts": [attempt],
            "git": git_state(Path.cwd()),
            "versions": versions(),
            "machine": machine(),
        }
        if from_opt_steps is not None:
            previous = _read(self._run_dir)
            content |= {name: previous[name] for name in LASTING if name in previous}
            content |= {"opt_steps": from_opt_steps, **facts}
            content["attempts"] = [*previous.get("attempts", []), attempt]
        self.content = content
        self._write()

    def add(self, **facts: Any) -> None:
        """Adds facts that become known when a part is built. They are written immediately, or by
        `begin` if the run has not begun."""
        self._facts |= facts
        if self.begun:
            self.content |= facts
            self._write_or_log()

    def record_counters(self, counters: Mapping[str, Any]) -> None:
        """Writes the counters at a checkpoint; does nothing unless the run is running."""
        if self._is_running:
            self.content |= counters
            self._write_or_log()

    def progress(self, figures: Mapping[str, Any]) -> None:
        """Writes the current progress for processes that watch the run; `end` removes it."""
        if self._is_running:
            self._check_lock()
            self.content["progress"] = dict(figures)
            with suppress(OSError):  # not reported: progress is expendable
                self._write()

    def end(self, status: str, reason: str, **facts: Any) -> None:
        """Writes how the run ended. Further calls do not change this, but retry a failed write."""
        if self._is_running:
            self.content |= {"status": status, "exit_reason": reason, "ended": now(), **facts}
            self.content.pop("progress", None)
        if self.begun:
            self._write_or_log()

    def _write_or_log(self) -> None:
        self._check_lock()
        path = self._run_dir / RUN_JSON
        try:
            if not path.exists():
                raise RunDeleted(path)
            self._write()
        except OSError as error:
            log.error("run.json could not be written: %s", error)

    def _write(self) -> None:
        write_json(self._run_dir / RUN_JSON, self.content)


def record_not_begun(
    run_dir: Path, *, command: Sequence[str], reason: str, status: str = "failed"
) -> None:
    """Writes why a run did not start, unless there is a record already; creates the directory.
    Raises `RunInUse`."""
    with RunLock(run_dir):
        if not read_run(run_dir):
            record = RunRecord(run_dir, command=command)
            record.begin()
            record.end(status, reason)


def read_run(run_dir: Path) -> dict[str, Any]:
    """Reads `run.json` and corrects its status to killed if the process ended without recording an
    end.

    Returns an empty dict if the file is missing or damaged. Writes nothing.
    """
    with running(run_dir) as is_running:
        facts = _read(run_dir)
    if is_running is False and facts.get("status") == "running":
        facts |= {"status": KILLED, "exit_reason": KILLED_REASON}
    return facts


def end_from_outside(
    run_dir: Path,
    pid: int,
    status: str,
    reason: str,
    *,
    host: str | None = None,
    stuck: bool = False,
    **facts: Any,
) -> bool:
    """Records the end of another process's run, on this machine unless `host` is given. The process
    has exited, or (`stuck`) still holds the lock and is about to be killed.

    Returns False and writes nothing if the process has recorded an end itself, or if the run
    belongs to a different process by now. Takes the lock first, so that no process resumes the run
    meanwhile.
    """
    if not (run_dir / RUN_JSON).is_file():
        return False
    with nullcontext() if stuck else RunLock(run_dir):
        record = _read(run_dir)
        is_owner = (record.get("pid"), record.get("host")) == (pid, host or platform.node())
        if record.get("status") != "running" or not is_owner:
            return False
        record |= {"status": status, "exit_reason": reason, "ended": now(), **facts}
        record.pop("progress", None)
        write_json(run_dir / RUN_JSON, record)
    return True


def import_paths(run_dir: Path) -> list[str]:
    """Returns the folders from which a run imported its modules."""
    return list(_read(run_dir).get("import_paths", []))


def _read(run_dir: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_bytes_or_empty(run_dir / RUN_JSON))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def now() -> str:
    """Returns the local time with its UTC offset."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
