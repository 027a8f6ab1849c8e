"""Which checkpoints stay, and which files of their rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from border_cli.core.errors import CheckpointError
from border_cli.core.files import is_own_folder
from border_cli.run.files import REPLAY, TEMPORARY, remove_files, remove_folder, sync
from border_cli.run.manifest import NAME, Manifest, read_manifest, write_manifest
from border_cli.run.replay_files import FOLDER

log = logging.getLogger(__name__)


def folder_name(opt_steps: int) -> str:
    """What the checkpoint of so many optimisation steps is called."""
    return f"{opt_steps:010d}"


@dataclass(frozen=True, slots=True)
class Kept:
    """One complete checkpoint; without a manifest where that is damaged."""

    folder: Path
    opt_steps: int
    manifest: Manifest | None

    @property
    def age(self) -> tuple[int, int]:
        """Rises from the oldest to the newest."""
        return (self.manifest.sequence if self.manifest else -1, self.opt_steps)


def is_complete(folder: Path) -> bool:
    return (folder / NAME).is_file()  # it is written last


def numbered(folder: Path) -> list[Path]:
    """The complete checkpoints of a folder by their steps; the best models are none of them."""
    if not folder.is_dir():
        return []
    named = [each for each in folder.iterdir() if each.name.isdecimal() and is_complete(each)]
    ours = [each for each in named if each.name == folder_name(int(each.name))]
    return sorted(ours, key=lambda each: int(each.name))


def by_age(folder: Path) -> list[Kept]:
    """The complete checkpoints, the oldest first, those included that another was just replacing
    when the process was killed."""
    found = [_kept(each, int(each.name)) for each in numbered(folder)]
    steps = {each.opt_steps for each in found}
    for old in folder.glob(".*.old"):
        name = old.name.removeprefix(".").removesuffix(".old")
        if name.isdecimal() and int(name) not in steps and is_complete(old):
            found.append(_kept(old, int(name)))
    return sorted(found, key=lambda each: each.age)


def _kept(folder: Path, opt_steps: int) -> Kept:
    try:
        return Kept(folder, opt_steps, read_manifest(folder))
    except CheckpointError:
        return Kept(folder, opt_steps, None)


def rotate(folder: Path, *, keep: int, milestone_interval: int) -> None:
    """Keeps the newest, and the milestones without their rows; then drops unnamed chunks.

    A milestone is the first checkpoint at or after each multiple of `milestone_interval`.
    """
    kept = by_age(folder)
    milestones = _milestones(kept, milestone_interval)
    for each in kept[:-keep]:
        if each.folder not in milestones:
            remove_folder(each.folder)
        elif each.manifest and each.manifest.replay and is_own_folder(each.folder):
            write_manifest(each.folder, replace(each.manifest, replay=None))
    sync(folder)  # no manifest may come back after a crash when its chunks are gone
    collect_garbage(folder)


def _milestones(kept: list[Kept], interval: int) -> set[Path]:
    first: dict[int, Kept] = {}
    for each in sorted(kept, key=lambda each: each.opt_steps) if interval else ():
        first.setdefault(each.opt_steps // interval, each)
    return {each.folder for multiple, each in first.items() if multiple > 0}


def collect_garbage(folder: Path) -> None:
    """Removes files of ours that no checkpoint names, or that killed processes left unfinished."""
    kept = by_age(folder)
    for each in kept:
        if is_own_folder(each.folder):
            remove_files(each.folder, TEMPORARY)
    if any(each.manifest is None for each in kept):
        return  # who knows which chunks it names
    named: set[str] = set()
    for each in kept:
        if each.manifest and each.manifest.replay:
            named.update(name for chunk in each.manifest.replay.chunks for name in chunk.files)
    replay = folder / FOLDER
    if is_own_folder(replay):
        remove_files(replay, REPLAY, keep=frozenset(named))
