"""What in a run directory is ours: names, and what may be found under them.

Only what is written here by name is ever written to or removed; a link in its place refuses the
command.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from border_cli.core.errors import ConfigError
from border_cli.core.files import SETTINGS

log = logging.getLogger(__name__)

Kind = Literal["file", "folder", "link"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The names that are ours in one folder, as patterns; all else there is not."""

    files: str = ""
    links: str = ""
    folders: Mapping[str, Layout] = field(default_factory=dict)

    def is_file(self, name: str) -> bool:
        return re.fullmatch(self.files, name) is not None

    def is_link(self, name: str) -> bool:
        return re.fullmatch(self.links, name) is not None

    def folder_named(self, name: str) -> Layout | None:
        """What is ours in a folder of that name; None where the folder itself is not."""
        found = (each for pattern, each in self.folders.items() if re.fullmatch(pattern, name))
        return next(found, None)


_SAVED = r"agent\.pt|(state|score|manifest)\.json|arrays\.npz"
_CHUNK = r"rows-\d{10,}-\d{10,}-[0-9a-f]{8}\.(?:\d+|shared)\.npy"
STEPS = r"(best-)?\d{10,}"  # folders of checkpoints

TEMPORARY = Layout(files=rf"\.({_SAVED})\.[0-9a-f]+\.tmp")  # of a checkpoint, left by a kill
CHECKPOINT = Layout(files=rf"{_SAVED}|{TEMPORARY.files}")
REPLAY = Layout(files=rf"{_CHUNK}|\.{_CHUNK}\.tmp")
CHECKPOINTS = Layout(
    links="latest",
    folders={rf"{STEPS}|\.{STEPS}\.(old|partial)": CHECKPOINT, "replay": REPLAY},
)
EVENT_FILE = r"events\.out\.tfevents\.\d+\..*\.border"
RECORD = r"(config|overrides|resolved)\.yaml"
HYDRA = Layout(
    files=RECORD,
    folders={r"resume-\d+": Layout(files=rf"{RECORD}|resolved-before\.yaml|command\.txt")},
)
FILMS = Layout(files=r"\d{10,}\.gif")
RUN = Layout(
    files=r"run\.(json|lock)|job\.(json|yaml)|metrics\.jsonl|border-train\.log|not_finite\.npz"
    rf"|output\.log|{EVENT_FILE}",
    links="best",
    folders={"checkpoints": CHECKPOINTS, "videos": FILMS, r"\.hydra": HYDRA},
)
SWEEP = Layout(files=r"sweep\.(json|csv|stop)|study\.db")
RUN_OR_SWEEP = replace(RUN, files=f"{RUN.files}|{SWEEP.files}")


# What stays where a run starts over.
KEPT = ("run.lock", "border-train.log", "output.log", "job.json", "job.yaml")


def entries_of_ours(folder: Path, layout: Layout = RUN) -> Iterator[tuple[os.DirEntry[str], Kind]]:
    """All that has a name of ours, and what it should be; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if layout.is_file(entry.name):
                yield entry, "file"
            elif layout.is_link(entry.name):
                yield entry, "link"
            inner = layout.folder_named(entry.name)
            if inner is not None:
                yield entry, "folder"
                if entry.is_dir(follow_symlinks=False):
                    yield from entries_of_ours(Path(entry.path), inner)


def backup_of(place: Path) -> Path:
    """Where a folder is while another one takes its place."""
    return place.with_name(f".{place.name}.old")


def partial_of(place: Path) -> Path:
    """Where a folder is while it is not complete: not yet, or no longer."""
    return place.with_name(f".{place.name}.partial")


def refuse_foreign(run_dir: Path) -> None:
    """Raises `ConfigError` where a link, or something else that no run makes, has a name of ours.

    To be called before a command opens or creates anything in a directory that may have been used.
    """
    if not run_dir.is_dir():
        return
    try:
        for entry, kind in entries_of_ours(run_dir, RUN_OR_SWEEP):
            _refuse_other(entry, kind)
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be read: {error}") from error


def _refuse_other(entry: os.DirEntry[str], kind: Kind) -> None:
    fits = {
        "file": entry.is_file(follow_symlinks=False),
        "folder": entry.is_dir(follow_symlinks=False),
        "link": entry.is_symlink(),
    }
    if not fits[kind]:
        what = f"a link to {Path(entry.path).resolve()}" if entry.is_symlink() else f"no {kind}"
        raise ConfigError(
            f"{entry.path} is {what}, and a run writes and deletes a {kind} of its own there: move "
            "it away. To keep a run on another disk, move its whole directory, which may be a link"
        )


def remove_files(folder: Path, layout: Layout, *, keep: frozenset[str] = frozenset()) -> None:
    """Removes the regular files with names of ours, but for those to `keep`."""
    with os.scandir(folder) as entries:
        found = [
            each.path
            for each in entries
            if layout.is_file(each.name)
            and each.name not in keep
            and each.is_file(follow_symlinks=False)
        ]
    for path in found:
        Path(path).unlink(missing_ok=True)


def remove_attempt(run_dir: Path) -> None:
    """Removes what an attempt left that has no checkpoint; its logs stay."""
    if not (run_dir / SETTINGS).is_file():
        return
    found = [entry for entry, kind in entries_of_ours(run_dir) if kind != "folder"]
    for entry in found:
        if entry.name not in KEPT:
            Path(entry.path).unlink()
    log.info("removed an attempt without a checkpoint; the run starts over")
