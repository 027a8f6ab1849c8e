"""One process at a time in a run directory, and how others see whether it is still there."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from border_cli.core.errors import ConfigError, reachable
from border_cli.core.files import not_through_links

log = logging.getLogger(__name__)

NAME = "run.lock"
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # of the file system
LOOKS, PAUSE_S = 20, 0.02


# What a run that goes on reads or writes; what is only replaced need not be writable itself.
FOLDERS = (".", ".hydra", "tensorboard", "checkpoints", "checkpoints/replay")
READ = (".hydra/resolved.yaml", "run.json")
GROWING = (NAME, "border-train.log", "metrics.jsonl", "superseded.jsonl")


def refuse_denied(run_dir: Path) -> None:
    """Raises ConfigError where a run can not go on because its files are somebody else's."""
    denied = [
        *(name for name in FOLDERS if _is_denied(run_dir / name, os.R_OK | os.W_OK | os.X_OK)),
        *(name for name in READ if _is_denied(run_dir / name, os.R_OK)),
        *(name for name in GROWING if _is_denied(run_dir / name, os.R_OK | os.W_OK)),
    ]
    if denied:
        raise ConfigError(
            f"{run_dir} cannot be resumed: {run_dir / denied[0]} cannot be "
            f"{'read' if denied[0] in READ else 'written to'} (Permission denied). "
            "init_from starts a new run from the weights of any readable run"
        )


def _is_denied(path: Path, mode: int) -> bool:
    """Whether it is there and this process may not use it so."""
    return os.path.lexists(path) and not os.access(path, mode)


class RunInUse(ConfigError):
    """Another process runs in the directory."""

    def __init__(self, run_dir: Path, owner: dict[str, Any]) -> None:
        who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        super().__init__(f"{run_dir} is in use by {who}")


def _pause() -> None:
    threading.Event().wait(PAUSE_S)


class RunLock:
    """Within the block no other process runs in the directory; raises `RunInUse` where one does.

    The lock is the kernel's (flock) and goes with the process, whatever ends that. Children do not
    have it. Where the file system knows no locks, the file tells who runs. It stays, unlocked: to
    remove it would let two processes lock two files of one name.
    """

    def __init__(self, run_dir: Path, *, pause: Callable[[], object] = _pause) -> None:
        self._run_dir = run_dir
        self._pause = pause
        self._file = -1
        self._turn = threading.Lock()  # of those that `hold`

    def __enter__(self) -> RunLock:
        with reachable(ConfigError):
            self._file = self._taken()
        _held.add(self)
        return self

    def hold(self) -> None:
        """Takes the lock anew where its file is gone, as with the whole run directory, which is
        made again. To be called before anything else is made there; by any thread.

        Raises `OSError` where another process has begun to run there since.
        """
        with self._turn:
            if self._file < 0 or self._stands():
                return
            gone = self._run_dir / NAME if self._run_dir.is_dir() else self._run_dir
            log.warning("%s was deleted or moved; creating it again", gone)
            try:
                file = self._taken()
            except RunInUse as error:
                raise OSError(errno.EBUSY, str(error)) from error
            os.close(self._file)
            self._file = file

    def _stands(self) -> bool:
        ours = os.fstat(self._file)
        try:
            return os.path.samestat(ours, (self._run_dir / NAME).lstat())
        except FileNotFoundError:
            return False

    def _taken(self) -> int:
        """The file, open and locked."""
        self._run_dir.resolve().mkdir(parents=True, exist_ok=True)  # a link may lead nowhere by now
        file = not_through_links(self._run_dir / NAME, os.O_RDWR | os.O_CREAT)
        try:
            self._take(file)
        except BaseException:
            os.close(file)
            raise
        with suppress(OSError):  # a full disk: nobody will know who it is, but that there is one
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(this_process()).encode(), 0)
        return file

    def __exit__(self, *rest: object) -> None:
        file, self._file = self._file, -1
        if file < 0:
            return  # a child that was forked within the block
        with suppress(OSError):
            os.ftruncate(file, 0)
        os.close(file)

    def forget(self) -> None:
        """Closes a child's copy of the file, which leaves its parent's lock as it is."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _take(self, file: int) -> None:
        for _ in range(LOOKS):  # whoever only looks has the lock for a moment, too
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._pause()
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                self._take_without_locks(file)
                return
        raise RunInUse(self._run_dir, _owner(file))

    def _take_without_locks(self, file: int) -> None:
        owner = _owner(file)
        running = _lives(owner)
        if running:
            raise RunInUse(self._run_dir, owner)
        if running is None:
            log.warning(
                "%s was last used by process %s on %s; cannot tell from here if that still runs",
                self._run_dir, owner["pid"], owner["host"],
            )  # fmt: skip


_held: WeakSet[RunLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def look(run_dir: Path) -> Iterator[bool | None]:
    """Whether a process runs in the directory; None where that cannot be told from here.

    Where none does, none can begin within the block, which should therefore be short.
    """
    try:
        file = os.open(run_dir / NAME, os.O_RDONLY | os.O_NONBLOCK)
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
        return _lives(_owner(file))
    return False


def _owner(file: int) -> dict[str, Any]:
    """Who wrote the file; empty where nobody did, or gave the lock back since."""
    try:
        owner = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    known = isinstance(owner, dict) and isinstance(owner.get("pid"), int)
    return owner if known and isinstance(owner.get("host"), str) else {}


def _lives(owner: dict[str, Any]) -> bool | None:
    if not owner:
        return False
    if owner["host"] != platform.node():
        return None
    start = process_start(owner["pid"])
    return start is not None and start == owner.get("process_start", start)


def this_process() -> dict[str, Any]:
    """What tells this process from all others, also from a later one with the same id."""
    return process_facts(os.getpid())


def process_facts(pid: int) -> dict[str, Any]:
    """The same for another process of this machine."""
    return {"pid": pid, "host": platform.node(), "process_start": process_start(pid)}


def process_start(pid: int) -> str | None:
    """When a process of this machine began, in whatever way its system tells; None: it is gone."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return None if fields[0] in "ZX" else f"{fields[19]} ticks after boot {boot}"
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None
