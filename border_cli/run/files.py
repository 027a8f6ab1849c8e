"""What is ours in a run directory, and folders that a reader, or a crash, never meets by half.

Only what is written here by name is ever written to or removed, and nothing behind a link.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from border_cli.core.errors import ConfigError
from border_cli.core.files import is_own_folder, own_folder, write_text

log = logging.getLogger(__name__)

Kind = Literal["file", "folder", "link"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The names that are ours in one folder, as patterns; whatever else lies there is not."""

    files: str = ""
    links: str = ""
    folders: Mapping[str, Layout] = field(default_factory=dict)

    def is_file(self, name: str) -> bool:
        return re.fullmatch(self.files, name) is not None


_SAVED = r"(agent|candidate)\.pt|(state|score|manifest)\.json|arrays\.npz"
_CHUNK = r"rows-\d{10,}-\d{10,}-[0-9a-f]{8}\.\d+\.npy"
_STEPS = r"(best-)?\d{10,}"

TEMPORARY = Layout(files=rf"\.({_SAVED})\.[0-9a-f]+\.tmp")  # of a checkpoint, left by a kill
CHECKPOINT = Layout(files=rf"{_SAVED}|{TEMPORARY.files}")
REPLAY = Layout(files=rf"{_CHUNK}|\.{_CHUNK}\.tmp")
CHECKPOINTS = Layout(
    links="latest",
    folders={rf"{_STEPS}|\.{_STEPS}\.(old|partial)": CHECKPOINT, "replay": REPLAY},
)
EVENT_FILE = r"(events\.out\.tfevents\.|superseded-)\d+\..*\.border(\.\d+)?"
EVENTS = Layout(files=r"(events\.out\.tfevents|superseded-).*")  # of earlier versions
RECORD = r"(config|overrides|hydra|resolved)\.yaml"
HYDRA = Layout(
    files=RECORD,
    folders={r"resume-\d+": Layout(files=rf"{RECORD}|resolved-before\.yaml|command\.txt")},
)
RUN = Layout(
    files=r"run\.(json|lock)|(metrics|superseded)\.jsonl|border-train\.log|not_finite\.npz"
    rf"|sweep\.csv|multirun\.yaml|{EVENT_FILE}",
    links="best",
    folders={"checkpoints": CHECKPOINTS, "tensorboard": EVENTS, r"\.hydra": HYDRA},
)


def entries_of_ours(folder: Path, layout: Layout = RUN) -> Iterator[tuple[os.DirEntry[str], Kind]]:
    """All that stands under a name of ours and what it should be; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if layout.is_file(entry.name):
                yield entry, "file"
            elif re.fullmatch(layout.links, entry.name):
                yield entry, "link"
            inner = _folder_named(entry.name, layout)
            if inner is not None:
                yield entry, "folder"
                if entry.is_dir(follow_symlinks=False):
                    yield from entries_of_ours(Path(entry.path), inner)


def _folder_named(name: str, layout: Layout) -> Layout | None:
    found = (inner for pattern, inner in layout.folders.items() if re.fullmatch(pattern, name))
    return next(found, None)


def refuse_foreign(run_dir: Path) -> None:
    """Raises `ConfigError` where something else stands in the place of a file or folder of ours.

    To be called before a run opens or makes anything in a directory that may have been used.
    """
    if not run_dir.is_dir():
        return
    try:
        for entry, kind in entries_of_ours(run_dir):
            _refuse_other(entry, kind, run_dir)
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be read: {error}") from error


def _refuse_other(entry: os.DirEntry[str], kind: Kind, run_dir: Path) -> None:
    noun = "directory" if kind == "folder" else kind
    if kind == "link":
        if not entry.is_symlink():
            raise ConfigError(
                f"{entry.path} is in the way: the run creates a symbolic link there. Move it away"
            )
    elif entry.is_symlink():
        raise ConfigError(
            f"{entry.path} is a link to {Path(entry.path).resolve()}. A run writes and deletes "
            f"files there: replace the link with the {noun} itself. To keep a run on another disk, "
            f"move its whole directory; {run_dir} or a directory above it may be a link"
        )
    elif not (entry.is_file() if kind == "file" else entry.is_dir()):
        raise ConfigError(
            f"{entry.path} is not a {noun}, and the run needs one there: move it away"
        )


def refresh_times(run_dir: Path) -> None:
    """Makes all that is ours look as if just written, so that no purge of old files takes it."""
    with suppress(OSError):  # something went just now, which the next save looks at
        for entry, kind in entries_of_ours(run_dir):
            if kind == "file":
                os.utime(entry.path, follow_symlinks=False)


def write_json(path: Path, value: Any) -> None:
    """Replaces the file at once; numbers that JSON does not know become null."""
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
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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


def partial(place: Path) -> Path:
    """Where a folder stands while it is not complete: not yet, or no longer."""
    return place.with_name(f".{place.name}.partial")


def replace_folder(new: Path, place: Path) -> None:
    """Moves the folder `new` to `place`; what stood there is removed when `new` is safe.

    No system call swaps two folders everywhere, so for a moment `place` is missing and its content
    stands at `aside(place)`: `restore_folders` undoes what a crash in that moment leaves.
    """
    old = aside(place)
    if os.path.lexists(place):
        own_folder(place)
        dissolve(old)
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        if is_own_folder(old):
            old.rename(place)
        raise
    sync(place.parent)
    dissolve(old)


def remove_folder(folder: Path) -> None:
    """Removes the folder; a crash in between never leaves half of it under its name."""
    if is_own_folder(folder):
        doomed = partial(folder)
        dissolve(doomed)
        folder.rename(doomed)
        dissolve(doomed)


def dissolve(hidden: Path) -> None:
    """Removes the files of a checkpoint from a folder that stands aside, and then the folder.

    What is not ours stays in it, where a person finds it: `.0000000010.old` becomes
    `0000000010-left`.
    """
    if not is_own_folder(hidden):
        return
    remove_files(hidden, CHECKPOINT)
    try:
        hidden.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        name, number = hidden.name.strip(".").rpartition(".")[0], 1
        left = hidden.with_name(f"{name}-left")
        while os.path.lexists(left):
            number += 1
            left = hidden.with_name(f"{name}-left-{number}")
        hidden.rename(left)
        log.warning("removed a checkpoint; other files found in it were moved to %s", left)


def remove_files(folder: Path, layout: Layout, *, keep: frozenset[str] = frozenset()) -> None:
    """Removes the regular files with names of ours, but for those to `keep`."""
    with os.scandir(folder) as entries:
        doomed = [
            each.path
            for each in entries
            if layout.is_file(each.name)
            and each.name not in keep
            and each.is_file(follow_symlinks=False)
        ]
    for path in doomed:
        Path(path).unlink(missing_ok=True)


def restore_folders(parent: Path) -> None:
    """Puts back what a crash left aside, and removes what it left half written."""
    for old in _hidden(parent, "old"):
        place = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
        if os.path.lexists(place):
            dissolve(old)
        else:
            old.rename(place)
    for half in _hidden(parent, "partial"):
        dissolve(half)


def _hidden(parent: Path, ending: str) -> list[Path]:
    named = rf"\.{_STEPS}\.{ending}"
    found = [each for each in parent.iterdir() if re.fullmatch(named, each.name)]
    return [each for each in found if is_own_folder(each)]


def point_link(link: Path, target: str) -> None:
    """Makes `link` a relative symbolic link to `target`, at once."""
    if os.path.lexists(link) and not link.is_symlink():
        raise OSError(errno.EEXIST, "is not a symbolic link", str(link))
    temporary = link.with_name(f".{link.name}.tmp")
    if temporary.is_symlink():
        temporary.unlink()
    temporary.symlink_to(target)
    temporary.replace(link)


def files_in(folder: Path) -> set[str]:
    """The names of the regular files in a folder, by one listing; none where it is not there."""
    try:
        with os.scandir(folder) as entries:
            return {each.name for each in entries if each.is_file(follow_symlinks=False)}
    except (FileNotFoundError, NotADirectoryError):
        return set()
