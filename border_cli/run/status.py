"""How a run goes and how it ended: `run.json`."""

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
from border_cli.system.files import readable_bytes, write_json

log = logging.getLogger(__name__)


RUN_JSON = "run.json"
DONE = "done"  # the status of a run that has reached a limit
LOST, NOT_STARTED = "lost", "not started"  # has begun or not, without a record
SKIPPED = "skipped"  # a job of a sweep that leaves out what is refused
KILLED = "its process was killed, or its machine went down"


# What a resumed run keeps from the attempts before.
EPISODE_LIMIT = "evaluation_episode_limit"  # env steps, where the run had to decide one
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
    """The document `run.json` of one attempt of a run; rewritten whole at every change.

    `status` is running, done, failed, interrupted or skipped, and by `read_run` also killed. Owned
    by the thread that runs the command, within a `RunLock`. Before `begin` nothing is written: the
    document of the attempt before is still true. A full disk is reported; `add`, `saved` and `end`
    raise `RunDeleted`.
    """

    def __init__(
        self, run_dir: Path, *, check_lock: Callable[[], None] = lambda: None, **facts: Any
    ) -> None:
        """`check_lock`: of the run's lock, before each change."""
        self._run_dir = run_dir
        self._check_lock = check_lock
        self._facts = facts
        self.content: dict[str, Any] = {}

    @property
    def begun(self) -> bool:
        return bool(self.content)

    @property
    def _runs(self) -> bool:
        return self.content.get("status") == "running"

    def begin(self, from_opt_steps: int | None = None) -> None:
        """Writes the document of a new run, or of one that is resumed from a checkpoint: then what
        the caller's `facts` do not say is as it was."""
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
            before = _read(self._run_dir)
            content |= {name: before[name] for name in LASTING if name in before}
            content |= {"opt_steps": from_opt_steps, **facts}
            content["attempts"] = [*before.get("attempts", []), attempt]
        self.content = content
        self._write()

    def add(self, **facts: Any) -> None:
        """Writes what is known once a part is built; of a resumed run when it begins."""
        self._facts |= facts
        if self.begun:
            self.content |= facts
            self._write_or_log()

    def saved(self, counters: Mapping[str, Any]) -> None:
        """Writes how far the run is; nothing before it begins or after its end."""
        if self._runs:
            self.content |= counters
            self._write_or_log()

    def progress(self, figures: Mapping[str, Any]) -> None:
        """Writes how far the run is at this moment, for whoever watches it until it ends."""
        if self._runs:
            self._check_lock()
            self.content["progress"] = dict(figures)
            with suppress(OSError):  # a full disk is reported where something is lost by it
                self._write()

    def end(self, status: str, reason: str, **facts: Any) -> None:
        """Writes how the run ended; the first end stays, and is written again where that failed."""
        if self._runs:
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
    """Writes why a run did not begin, where nothing says how one went; makes the directory. Raises
    `RunInUse`."""
    with RunLock(run_dir):
        if not read_run(run_dir):
            record = RunRecord(run_dir, command=command)
            record.begin()
            record.end(status, reason)


def read_run(run_dir: Path) -> dict[str, Any]:
    """`run.json` with the true status: a run whose process is gone without an end was killed.

    Empty where it is missing or damaged. Nothing is written.
    """
    with running(run_dir) as runs:
        facts = _read(run_dir)
    if runs is False and facts.get("status") == "running":
        facts |= {"status": "killed", "exit_reason": KILLED}
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
    """Writes how the run of another process ended, which is gone, or still has the lock and is
    about to be killed (`stuck`); of this machine without `host`.

    Writes nothing where that process has written an end, or where the run is no longer its own:
    the lock is taken first, so no other process resumes the run meanwhile.
    """
    if not (run_dir / RUN_JSON).is_file():
        return False
    with nullcontext() if stuck else RunLock(run_dir):
        found = _read(run_dir)
        own = (found.get("pid"), found.get("host")) == (pid, host or platform.node())
        if found.get("status") != "running" or not own:
            return False
        found |= {"status": status, "exit_reason": reason, "ended": now(), **facts}
        found.pop("progress", None)
        write_json(run_dir / RUN_JSON, found)
    return True


def import_paths(run_dir: Path) -> list[str]:
    """The folders in which a run found its modules."""
    return list(_read(run_dir).get("import_paths", []))


def _read(run_dir: Path) -> dict[str, Any]:
    try:
        facts = json.loads(readable_bytes(run_dir / RUN_JSON))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def now() -> str:
    """The local time with its offset from UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
