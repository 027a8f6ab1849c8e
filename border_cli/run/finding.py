"""Finds the checkpoints of a run directory, and the checkpoint that a name refers to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from border_cli.errors import CheckpointError, ConfigError, os_errors_as
from border_cli.run.layout import partial_of
from border_cli.run.manifest import MANIFEST, Manifest, read_json, read_manifest, verify
from border_cli.system.files import SETTINGS, settings_path

T = TypeVar("T")


def folder_name(opt_steps: int) -> str:
    """Returns the name of the checkpoint folder after this number of updates."""
    return f"{opt_steps:010d}"


def is_complete(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()  # the manifest is written last


def find_complete(folder: Path) -> dict[int, Path]:
    """Returns the complete checkpoints of a folder, keyed by their number of updates in ascending
    order.

    Best models are excluded. If a crash interrupted a replacement, the new checkpoint is returned.
    """
    checkpoints = {}
    for path in sorted(folder.glob("*"), reverse=True):  # hidden names come last and override
        match = re.fullmatch(r"\.?([0-9]{10,})(\.partial)?", path.name)
        if match and is_complete(path):
            checkpoints[int(match[1])] = path
    return dict(sorted(checkpoints.items()))


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """A complete checkpoint; `manifest` is None if it is damaged."""

    folder: Path
    opt_steps: int
    manifest: Manifest | None

    @property
    def position(self) -> tuple[int, int]:
        """Sort key: oldest first."""
        return (self.manifest.sequence if self.manifest else -1, self.opt_steps)


def _load(folder: Path, opt_steps: int) -> CompleteCheckpoint:
    try:
        return CompleteCheckpoint(folder, opt_steps, read_manifest(folder))
    except CheckpointError:
        return CompleteCheckpoint(folder, opt_steps, None)


def by_age(folder: Path) -> list[CompleteCheckpoint]:
    """Returns the complete checkpoints, oldest first."""
    checkpoints = [_load(path, opt_steps) for opt_steps, path in find_complete(folder).items()]
    return sorted(checkpoints, key=lambda c: c.position)


def find_resumable(run_dir: Path) -> list[Path]:
    """Returns the complete checkpoints that a run may resume from, newest first, not yet verified.

    Checkpoints with a damaged manifest come first, so that the log names them.
    """
    newest_first = by_age(run_dir / "checkpoints")[::-1]
    return [c.folder for c in sorted(newest_first, key=lambda c: c.manifest is not None)]


def steps_saved(run_dir: Path) -> list[int]:
    """Returns the numbers of updates of the complete checkpoints, in ascending order."""
    return [*find_complete(run_dir / "checkpoints")]


@os_errors_as(CheckpointError)
def find_run(path: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """Returns the run directory and the checkpoint that `path` and `checkpoint` refer to.

    `path` is a run directory, a checkpoint in one (`RUN/best`, `RUN/checkpoints/5000`), or the
    folder of an exported policy. The returned checkpoint is None if neither argument names one.
    Raises `CheckpointError` for any other path, and `ConfigError` if the arguments name two
    checkpoints.
    """
    target = _parse_checkpoint(path)
    if target is not None:
        if checkpoint not in (None, target[1]):
            raise ConfigError(
                f"{path} is a checkpoint: remove checkpoint={checkpoint}, or use {target[0]}"
            )
        return target
    if settings_path(path).is_file():
        return path, checkpoint
    if not path.exists():
        raise CheckpointError(f"no such directory: {path}{hint_at_run(path)}")
    hint = hint_at_run(path) or f"; border-runs {path} lists the runs below it"
    raise CheckpointError(f"{path} is not a run directory: it has no {SETTINGS}{hint}")


def _parse_checkpoint(path: Path) -> tuple[Path, str] | None:
    """Returns the run directory and the checkpoint that a path refers to. It need not exist."""
    path = path.absolute()
    folder, name = path.parent, path.name
    if name == "best" and (folder / SETTINGS).is_file():
        return folder, name
    if folder.name != "checkpoints" or not (folder.parent / SETTINGS).is_file():
        return None
    if name.isdecimal():
        return folder.parent, str(int(name))
    if name == "latest":
        return folder.parent, name
    return (folder.parent, "best") if path == (folder.parent / "best").resolve() else None


def hint_at_run(path: Path) -> str:
    """Returns a hint that names the run containing this path; empty if there is none."""
    run_dir = next(
        (parent for parent in path.absolute().parents if (parent / SETTINGS).is_file()), None
    )
    return f"; the run is {run_dir}" if run_dir else ""


@os_errors_as(CheckpointError)
def find_checkpoint(run_dir: Path, which: str) -> Path:
    """Returns the folder of `best`, `latest` or a number of updates.

    Raises an error that lists the available checkpoints. The path is resolved, so that a link that
    is changed later does not affect the reader.
    """
    saved = find_complete(run_dir / "checkpoints")
    newest = next(reversed(saved.values()), None)
    folders = {
        "best": _resolve_complete(run_dir / "best"),
        **{str(opt_steps): folder for opt_steps, folder in saved.items()},
        "latest": _resolve_complete(run_dir / "checkpoints" / "latest") or newest,
    }
    match = folders.get(str(int(which)) if which.isdecimal() else which)
    if match is None:
        names = ", ".join(name for name, folder in folders.items() if folder) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint {which} (choose from {names})")
    return match.resolve()


def _resolve_complete(link: Path) -> Path | None:
    """Returns the complete folder behind a link, or the one that was about to replace it."""
    folder = link.resolve()
    return next((path for path in (partial_of(folder), folder) if is_complete(path)), None)


@os_errors_as(CheckpointError)
def find_weights(path: Path) -> Path:
    """Returns the folder with the initial weights of a new run: the best model or else the latest
    checkpoint of a run directory, or `path` itself if it is a checkpoint."""
    folder = path.resolve()
    if is_complete(folder):
        return folder
    run_dir, which = find_run(path)
    best = "best" if is_complete(run_dir / "best") else "latest"
    return find_checkpoint(run_dir, which or best)


def read_model(find: Callable[[], Path], read: Callable[[Path], T]) -> tuple[Path, T]:
    """Verifies the folder that `find` returns, and returns the folder and the result of `read`.

    A training run deletes old checkpoints: if that happens meanwhile, `find` is called again.
    Raises `CheckpointError` if `find` finds none, or if the checkpoint is damaged.
    """
    while True:
        folder = find()
        try:
            verify(folder)
            return folder, read(folder)
        except CheckpointError:
            if is_complete(folder):
                raise


def best_score(run_dir: Path) -> tuple[float, int] | None:
    """Returns the score and the update of the best model, or None if there is no valid one."""
    try:
        folder = find_checkpoint(run_dir, "best")
        verify(folder)
        document = read_json(folder / "score.json")
    except CheckpointError:
        return None
    return None if document["score"] is None else (document["score"], document["opt_steps"])
