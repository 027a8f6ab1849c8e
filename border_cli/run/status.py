"""Which process runs in a directory, and how its run went: `run.lock` and `run.json`."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from weakref import WeakSet

from border_cli.errors import ConfigError, NotBegun, RunDeleted, reachable
from border_cli.system.files import readable_bytes, refuse_deleted, write_json
from border_cli.system.foreign import mark_of
from border_cli.system.machine import available_cores

log = logging.getLogger(__name__)


# Programs that the settings of a repository name for files.
_FILTERS = re.compile(r"(?m)^(local|worktree)\s+(filter|lfs\.extension)\..*\.(clean|process)$")
RUN_LOCK, RUN_JSON = "run.lock", "run.json"
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # of the file system
TRIES, PAUSE_S = 20, 0.02
PACKAGES = (
    "border-cli",
    "torch",
    "gymnasium",
    "numpy",
    "hydra-core",
    "omegaconf",
    "tensorboard",
    "rich",
)
DONE = "done"  # the status of a run that has reached a limit
LOST, NOT_STARTED = "lost", "not started"  # has begun or not, without a record
SKIPPED = "skipped"  # a job of a sweep that leaves out what is refused
KILLED = "its process was killed, or its machine went down"


class RunInUse(NotBegun):
    """Another process runs in the directory."""

    def __init__(self, run_dir: Path) -> None:
        who = "another process"
        with suppress(OSError, ValueError, LookupError):  # it could not write who it is
            owner = json.loads((run_dir / RUN_LOCK).read_bytes())
            who = f"process {owner['pid']} on {owner['host']}"
        super().__init__(f"{run_dir} is in use by {who}")


class RunLock:
    """Within the block no other process runs in the directory; raises `RunInUse` where one does.

    The lock is the kernel's (flock) and goes with the process, whatever ends that. Children do not
    have it. Where the file system knows no locks, a warning is all. The file stays, unlocked: to
    remove it would let two processes lock two files of one name.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._file = -1

    def __enter__(self) -> RunLock:
        with reachable(ConfigError):
            self._run_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._run_dir / RUN_LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                self._lock()
            except BaseException:
                self.forget()
                raise
        _held.add(self)
        with suppress(OSError):  # a full disk: others see that a process runs, but not which
            os.ftruncate(self._file, 0)
            owner = {"pid": os.getpid(), "host": platform.node()}
            os.pwrite(self._file, json.dumps(owner).encode(), 0)
        return self

    def check(self) -> None:
        """Raises `RunDeleted` where the directory, which another run may use by now, or the lock in
        it was deleted or moved; by any thread."""
        refuse_deleted(self._run_dir / RUN_LOCK, self._file)

    def __exit__(self, *rest: object) -> None:
        if self._file >= 0:  # not a child that was forked within the block
            with suppress(OSError):
                os.ftruncate(self._file, 0)
        self.forget()

    def forget(self) -> None:
        """Closes the file; in a child its copy, which leaves its parent's lock as it is."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _lock(self) -> None:
        for _ in range(TRIES):  # `running` has the lock for a moment, too
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(PAUSE_S)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                log.warning(
                    "%s is on a file system without locks: make sure that no other process uses it",
                    self._run_dir,
                )
                return
        raise RunInUse(self._run_dir)


_held: WeakSet[RunLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def running(run_dir: Path) -> Iterator[bool | None]:
    """Whether a process runs in the directory; None where that cannot be told from here.

    Where none does, none can begin within the block, which should therefore be short.
    """
    try:
        file = os.open(run_dir / RUN_LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        yield False if isinstance(error, FileNotFoundError) else None
        return
    try:
        yield _is_held(file)
    finally:
        os.close(file)


def _is_held(file: int) -> bool | None:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


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


def status_without_record(run_dir: Path) -> str:
    """Whether a run without a `run.json` that can be read has begun: lost, or not started."""
    begun = any((run_dir / each).exists() for each in (RUN_LOCK, RUN_JSON, "checkpoints"))
    return LOST if begun else NOT_STARTED


def decided_episode_limit(run_dir: Path) -> int | None:
    """The limit of evaluated episodes that a run decided; None if it needed none."""
    steps = read_run(run_dir).get(EPISODE_LIMIT)
    return steps if type(steps) is int and steps > 0 else None


def read_run(run_dir: Path) -> dict[str, Any]:
    """`run.json` with the true status: a run whose process is gone without an end was killed.

    Empty where it is missing or damaged. Nothing is written.
    """
    facts = _read(run_dir)
    if facts.get("status") != "running":
        return facts
    with running(run_dir) as runs:
        if runs is not False:
            return facts
        facts = _read(run_dir)  # again: it may have ended just before
        if facts.get("status") == "running":
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


def versions() -> dict[str, str]:
    """The versions of Python and of the packages a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Where the run happens."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": available_cores(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and dirty flag of the user's repository; None without a repository, without git, or
    where border_cli wrote the repository's folder.

    `dirty` is None where the repository has filters, which `git status` would run.
    """
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if top is None or mark_of(top):
        return None
    try:
        commit = _git(top, "rev-parse", "HEAD")
        scopes = _git(top, "config", "--show-scope", "--includes", "--name-only", "--list")
        if _FILTERS.search(scopes):
            return {"commit": commit, "dirty": None}
        changes = _git(
            top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str:
    """What git answers. It runs no hook, no monitor of files and no program that fetches objects.

    Without optional locks the user's own git commands are never in each other's way.
    """
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(
        ["git", "--no-optional-locks", *safe, *arguments],
        cwd=folder,
        env={**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"},
        capture_output=True,
        text=True,
        timeout=5,
        check=True,
    )
    return done.stdout.strip()


def now() -> str:
    """The local time with its offset from UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
