"""The lock of a run directory, which ensures that only one process at a time runs there."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from border_cli.errors import ConfigError, NotBegun, os_errors_as
from border_cli.system.files import refuse_deleted

log = logging.getLogger(__name__)

RUN_LOCK = "run.lock"
# Errors of file systems that do not support locks.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
TRIES, PAUSE_S = 20, 0.02


class RunInUse(NotBegun):
    """Raised if another process is running in the directory."""

    def __init__(self, run_dir: Path) -> None:
        who = "another process"
        with suppress(OSError, ValueError, LookupError):  # the owner could not write its process id
            owner = json.loads((run_dir / RUN_LOCK).read_bytes())
            who = f"process {owner['pid']} on {owner['host']}"
        super().__init__(f"{run_dir} is in use by {who}")


class RunLock:
    """The lock of a run directory. Entering raises `RunInUse` if another process is running there.

    The kernel (flock) releases the lock when the process ends for any reason. Child processes do
    not inherit it. On a file system without locks, only a warning is logged. Only
    `remove_run` deletes the lock file, after the rest of the run and while it holds the lock;
    `check` detects that.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._file = -1

    def __enter__(self) -> RunLock:
        with os_errors_as(ConfigError):
            self._run_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._run_dir / RUN_LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                self._lock()
            except BaseException:
                self.forget()
                raise
        _held.add(self)
        with suppress(OSError):  # full disk: others cannot see which process is running
            os.ftruncate(self._file, 0)
            owner = {"pid": os.getpid(), "host": platform.node()}
            os.pwrite(self._file, json.dumps(owner).encode(), 0)
        return self

    def check(self) -> None:
        """Raises `RunDeleted` if the lock file or the directory was deleted or moved, and may now
        be used by another run. May be called by any thread."""
        refuse_deleted(self._run_dir / RUN_LOCK, self._file)

    def __exit__(self, *rest: object) -> None:
        if self._file >= 0:  # not in a child that was forked within the block
            with suppress(OSError):
                os.ftruncate(self._file, 0)
        self.forget()

    def forget(self) -> None:
        """Closes the file. In a child process, the lock of the parent is unaffected."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _lock(self) -> None:
        for _ in range(TRIES):  # `running` holds the lock for a moment as well
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
    """Yields whether a process is running in the directory, or None if this cannot be determined.

    If none is, none can start within the block, which should therefore be short.
    Without a lock file, one can.
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
