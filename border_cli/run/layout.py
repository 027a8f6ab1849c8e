"""The names of the files, directories and links that a run or a sweep writes.

Only what is written here by name is ever written to or removed; a link in its place refuses the
command.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from border_cli.errors import ConfigError, reachable
from border_cli.system.files import SETTINGS

log = logging.getLogger(__name__)

Kind = Literal["file", "folder", "link"]

TORN = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # left by a process that is killed as it writes


@dataclass(frozen=True, slots=True)
class Layout:
    """The names that are ours in one folder, as patterns; all else there is not."""

    files: str = ""
    links: str = ""
    folders: Mapping[str, Layout] = field(default_factory=dict)

    def kind_of(self, name: str) -> Kind | None:
        """The kind of entry that a name of ours stands for; None where the name is not ours."""
        torn = TORN.fullmatch(name)
        name = torn[1] if torn else name
        if self.folder_named(name) is not None:
            return "folder"
        if re.fullmatch(self.files, name):
            return "file"
        return "link" if re.fullmatch(self.links, name) else None

    def folder_named(self, name: str) -> Layout | None:
        """The names that are ours in a folder of that name; None where the folder itself is not."""
        found = (each for pattern, each in self.folders.items() if re.fullmatch(pattern, name))
        return next(found, None)


_SAVED = r"agent\.pt|(state|score|manifest)\.json|arrays\.npz"
_CHUNK = r"rows-\d{10,}-\d{10,}-[0-9a-f]{8}\.npy"
STEPS = r"(best-)?\d{10,}"  # folders of checkpoints

CHECKPOINT = Layout(files=_SAVED)
REPLAY = Layout(files=_CHUNK)
CHECKPOINTS = Layout(
    links="latest",
    folders={rf"{STEPS}|\.{STEPS}\.partial": CHECKPOINT, "replay": REPLAY},
)
EVENT_FILE = r"events\.out\.tfevents\.\d+\..*\.border"
RECORD = r"(config|overrides|resolved)\.yaml"
HYDRA = Layout(
    files=RECORD,
    folders={r"resume-\d+": Layout(files=rf"{RECORD}|resolved-before\.yaml|command\.txt")},
)
FILMS = Layout(files=r"\d{10,}\.gif")
RUN = Layout(
    files=r"run\.(json|lock)|job\.(json|yaml)|metrics\.jsonl|border-train\.log"
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
            kind = layout.kind_of(entry.name)
            if kind is None:
                continue
            yield entry, kind
            inner = layout.folder_named(entry.name)
            if inner is not None and entry.is_dir(follow_symlinks=False):
                yield from entries_of_ours(Path(entry.path), inner)


def partial_of(place: Path) -> Path:
    """Where a folder is until it is complete."""
    return place.with_name(f".{place.name}.partial")


def refuse_foreign(run_dir: Path) -> None:
    """Raises `ConfigError` where a link has the name of a file or folder of ours.

    To be called before a command opens or creates anything in a directory that may have been used.
    """
    if not run_dir.is_dir():
        return
    with reachable(ConfigError):
        for entry, kind in entries_of_ours(run_dir, RUN_OR_SWEEP):
            if entry.is_symlink() and kind != "link":
                raise ConfigError(
                    f"{entry.path} is a link to {Path(entry.path).resolve()}, and a run writes and "
                    f"deletes a {kind} of its own there: move it away. To keep a run on another "
                    "disk, move its whole directory, which may be a link"
                )


def remove_files(folder: Path, layout: Layout, *, keep: Collection[str] = ()) -> None:
    """Removes the files with names of ours, but for those to `keep`."""
    for entry, _ in [*entries_of_ours(folder, layout)]:
        if entry.name not in keep and entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink(missing_ok=True)


def remove_attempt(run_dir: Path) -> None:
    """Removes what an attempt left that has no checkpoint; its logs stay."""
    if not (run_dir / SETTINGS).is_file():
        return
    found = [entry for entry, kind in entries_of_ours(run_dir) if kind != "folder"]
    for entry in found:
        if entry.name not in KEPT:
            Path(entry.path).unlink()
    log.info("removed an attempt without a checkpoint; the run starts over")
