"""Files of a run: written, or appended to, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import stat
from io import FileIO
from numbers import Integral, Real
from pathlib import Path
from secrets import token_hex
from typing import Any

from border_cli.errors import ConfigError, RunDeleted

log = logging.getLogger(__name__)

SETTINGS = Path(".hydra") / "resolved.yaml"  # the settings that a run has saved
POLICY_JSON = "policy.json"  # of an exported policy; its settings lie beside it
METRICS = "metrics.jsonl"  # the rows that the recorder of that name writes
SWEEP_JSON = "sweep.json"  # the list of jobs in the directory of a sweep
STUDY_JSON = "study.json"  # what border-tune searches, in the directory of a study
MOST_NBYTES = 2**26  # of a file that is read whole, but for metrics


def is_exported(place: Path) -> bool:
    """Whether a folder is that of an exported policy."""
    return (place / POLICY_JSON).is_file()


def settings_of(place: Path) -> Path:
    """The file of the settings that a run has saved, or that were exported with a policy."""
    return place / SETTINGS.name if is_exported(place) else place / SETTINGS


def expanded(path: str) -> Path:
    """The path with `~` and `~user` resolved. Raises `ConfigError` where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path}: there is no user of this name with a home directory") from error


def read_bytes(path: Path, most_nbytes: int = MOST_NBYTES) -> bytes:
    """The contents of a file that another program may have written.

    Raises `OSError` where it is not a regular file (a pipe would be waited for), or is larger than
    ours are.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most_nbytes:
        reason = f"not a regular file of at most {most_nbytes:,} bytes"
        raise OSError(errno.EINVAL, reason, str(path))
    return path.read_bytes()


def readable_bytes(path: Path, most_nbytes: int = MOST_NBYTES) -> bytes:
    """The contents; empty where they cannot be read."""
    try:
        return read_bytes(path, most_nbytes)
    except OSError:
        return b""


def refuse_deleted(path: Path, descriptor: int) -> None:
    """Raises `RunDeleted` where the open file is no longer the one of this name."""
    try:
        if os.path.samestat(path.lstat(), os.fstat(descriptor)):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    raise RunDeleted(path)


def full_path(path: Path) -> Path:
    """The path from the root, with the user's home for `~`, without `..`; links stay links."""
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() follows links


def write_text(path: Path, text: str) -> None:
    """Replaces the file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file atomically: temporary name, sync, rename."""
    temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")  # two threads may write it
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replaces the file atomically; numbers that JSON does not know become null."""
    write_text(path, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """The value in plain numbers, with every NaN and infinity replaced by None."""
    if isinstance(value, Real) and not isinstance(value, int | float):  # numpy's, mostly
        value = int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value


def sync(path: Path) -> None:
    """Makes what a file holds, or the names inside a folder, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class AppendFile:
    """Takes each record whole or not at all. Owned by one thread.

    Unbuffered, so another process can read whatever `append` has returned from.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "ab")

    @property
    def size(self) -> int:
        """Where the records end, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, record: bytes) -> None:
        """Raises `OSError` where the disk does not take the record, and `RunDeleted` where the file
        was deleted."""
        refuse_deleted(self._path, self._file.fileno())
        size, left = self.size, memoryview(record)
        try:
            while left:  # fewer bytes than asked are written where the disk fills up
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(size)
            raise

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def cut(path: Path, size: int) -> None:
    """Drops what was recorded after a checkpoint; a file that is shorter, or gone, is named."""
    missing = size - (path.stat().st_size if path.exists() else 0)
    if missing > 0:
        log.warning("%s lacks %d bytes that it had at the checkpoint", path, missing)
    else:
        os.truncate(path, size)
