"""Files of a run, written or extended atomically."""

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

SETTINGS = Path(".hydra") / "resolved.yaml"  # settings saved by a run
POLICY_JSON = "policy.json"  # in the folder of an exported policy, next to its settings
METRICS = "metrics.jsonl"  # rows written by the jsonl recorder
SWEEP_JSON = "sweep.json"  # list of jobs, in the directory of a sweep
STUDY_JSON = "study.json"  # description of the search, in the directory of a study
MOST_NBYTES = 2**26  # default size limit of `read_bytes`


def is_exported(folder: Path) -> bool:
    """Returns whether a folder contains an exported policy."""
    return (folder / POLICY_JSON).is_file()


def settings_path(folder: Path) -> Path:
    """Returns the path of the settings that a run saved or that were exported with a policy."""
    return folder / SETTINGS.name if is_exported(folder) else folder / SETTINGS


def expand_user(path: str | Path) -> Path:
    """Returns the path with `~` and `~user` resolved. Raises `ConfigError` for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path}: there is no user of this name with a home directory") from error


def read_bytes(path: Path, most_nbytes: int = MOST_NBYTES) -> bytes:
    """Returns the contents of a file that another program may have written.

    Raises `OSError` if the file is not regular (a pipe would block) or larger than `most_nbytes`.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most_nbytes:
        reason = f"not a regular file of at most {most_nbytes:,} bytes"
        raise OSError(errno.EINVAL, reason, str(path))
    return path.read_bytes()


def read_bytes_or_empty(path: Path, most_nbytes: int = MOST_NBYTES) -> bytes:
    """Returns the contents; empty if they cannot be read."""
    try:
        return read_bytes(path, most_nbytes)
    except OSError:
        return b""


def refuse_deleted(path: Path, descriptor: int) -> None:
    """Raises `RunDeleted` if the open file is no longer the file at this path."""
    try:
        if os.path.samestat(path.lstat(), os.fstat(descriptor)):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    raise RunDeleted(path)


def full_path(path: Path) -> Path:
    """Returns the absolute path with `~` and `..` resolved. Symbolic links are not followed."""
    return Path(os.path.abspath(expand_user(path)))  # noqa: PTH100 - resolve() follows links


def write_text(path: Path, text: str) -> None:
    """Replaces the file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file atomically: temporary name, sync, rename."""
    temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")  # unique per writer
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
    """Replaces the file atomically. Numbers that are not finite become null."""
    write_text(path, json.dumps(replace_non_finite(value), indent=2, allow_nan=False) + "\n")


def replace_non_finite(value: Any) -> Any:
    """Converts numbers to plain Python types. NaN and infinity become None."""
    if isinstance(value, Real) and not isinstance(value, int | float):  # mostly numpy numbers
        value = int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): replace_non_finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return value


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk to survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> str:
    """Returns the SHA-256 of the file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class AppendFile:
    """A file to which records are appended atomically. Owned by one thread.

    Unbuffered: other processes can read a record as soon as `append` returns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "ab")

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, record: bytes) -> None:
        """Appends a record. Raises `OSError` if it cannot be written completely, and `RunDeleted`
        if the file was deleted."""
        refuse_deleted(self._path, self._file.fileno())
        size, remaining = self.size, memoryview(record)
        try:
            while remaining:  # a write may be partial if the disk fills up
                remaining = remaining[self._file.write(remaining) :]
        except OSError:
            self._file.truncate(size)
            raise

    def close(self) -> None:
        """Closes the file. May be called twice."""
        self._file.close()


def truncate(path: Path, size: int) -> None:
    """Truncates a file to its size at a checkpoint. Warns if the file is shorter or missing."""
    missing = size - (path.stat().st_size if path.exists() else 0)
    if missing > 0:
        log.warning("%s lacks %d bytes that it had at the checkpoint", path, missing)
    else:
        os.truncate(path, size)
