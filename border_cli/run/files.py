"""Writing so that a reader, or a crash, never meets half a file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from numbers import Integral, Real
from pathlib import Path
from secrets import token_hex
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replaces the file at once: temporary name, sync, rename."""
    temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")  # two threads may write it
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """The same for JSON; numbers that JSON does not know become null."""
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


def aside(place: Path) -> Path:
    """Where a folder stands while another one takes its place."""
    return place.with_name(f".{place.name}.old")


def replace_folder(new: Path, place: Path) -> None:
    """Moves the folder `new` to `place`; what stood there is removed when `new` is safe.

    No system call swaps two folders everywhere, so for a moment `place` is missing and its content
    stands at `aside(place)`: `restore_folders` undoes what a crash in that moment leaves.
    """
    old = aside(place)
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        if old.exists():
            old.rename(place)
        raise
    sync(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def partial(place: Path) -> Path:
    """Where a folder stands while it is not complete: not yet, or no longer."""
    return place.with_name(f".{place.name}.partial")


def remove_folder(folder: Path) -> None:
    """Removes the folder; a crash in between never leaves half of it under its name."""
    doomed = partial(folder)
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def restore_folders(parent: Path) -> None:
    """Puts back what a crash left aside, and removes what it left half written."""
    for old in parent.glob(".*.old"):
        place = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
        if place.exists():
            shutil.rmtree(old)
        else:
            old.rename(place)
    for half in parent.glob(".*.partial"):
        shutil.rmtree(half)


def point_link(link: Path, target: str) -> None:
    """Makes `link` a relative symbolic link to `target`, at once."""
    temporary = link.with_name(f".{link.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
