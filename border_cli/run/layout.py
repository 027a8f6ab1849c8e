"""The names of the files, directories and links that a run or a sweep writes.

Nothing else is ever written to or removed. A command refuses to start if there is a link in place
of one of these files or directories.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from border_cli.errors import ConfigError, os_errors_as
from border_cli.system.files import SETTINGS

log = logging.getLogger(__name__)

Kind = Literal["file", "folder", "link"]

TORN = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # left by a process killed during a write


# Patterns of the names that border_cli writes to one folder, and what each stands for: a file, a
# link, or a folder with a layout of its own. All other files belong to the user.
Layout: TypeAlias = "Mapping[str, Literal['file', 'link'] | Layout]"

CHECKPOINT_NAME = r"(best-)?\d{10,}"  # names of checkpoint folders

CHECKPOINT: Layout = {r"(agent|arrays)\.npz|(state|score|manifest)\.json": "file"}
REPLAY: Layout = {r"rows-\d{10,}-\d{10,}-[0-9a-f]{8}\.npy": "file"}
CHECKPOINTS: Layout = {
    "latest": "link",
    rf"{CHECKPOINT_NAME}|\.{CHECKPOINT_NAME}\.partial": CHECKPOINT,
    "replay": REPLAY,
}
RECORD: Layout = {r"(config|overrides|resolved)\.yaml": "file"}
HYDRA: Layout = {
    **RECORD,
    r"resume-\d+": {**RECORD, r"resolved-before\.yaml|command\.txt": "file"},
}
FILMS: Layout = {r"\d{10,}\.gif": "file"}
TRACKERS: Layout = {r"(mlflow|wandb|trackio)\.(json|jsonl|log)|summary\.json": "file"}
RUN: Layout = {
    r"run\.(json|lock)|job\.(json|yaml)|env\.json": "file",
    r"metrics\.jsonl|(border-train|output)\.log": "file",
    r"events\.out\.tfevents\..*\.border": "file",
    "best": "link",
    "checkpoints": CHECKPOINTS,
    "videos": FILMS,
    "trackers": TRACKERS,
    r"\.hydra": HYDRA,
}
SWEEP: Layout = {
    r"sweep\.(json|csv|stop)|study\.db(-journal|-wal|-shm)?|mlflow\.parent": "file",
    r"\.submitit": {},  # written by submitit itself
}
TRIALS: Layout = {r"trial-\d+": {r"run\.lock": "file", r"seed-\d+": RUN}}
STUDY: Layout = {
    **SWEEP,
    r"(study|trials)\.json|best\.yaml": "file",
    **TRIALS,
    "best": TRIALS,
}


# The files that remain when a run starts over.
KEPT = (
    *("run.lock", "border-train.log", "output.log", "job.json", "job.yaml"),
    *("mlflow.json", "mlflow.jsonl", "wandb.json", "wandb.jsonl", "trackio.json", "trackio.jsonl"),
)


def kind_of(name: str, layout: Layout) -> Literal["file", "link"] | Layout | None:
    """Returns what a name stands for in the layout, or None if the layout does not contain it."""
    temporary = TORN.fullmatch(name)
    name = temporary[1] if temporary else name
    return next((kind for pattern, kind in layout.items() if re.fullmatch(pattern, name)), None)


def layout_entries(folder: Path, layout: Layout = RUN) -> Iterator[tuple[os.DirEntry[str], Kind]]:
    """Yields the entries whose names are in the layout, recursively, with the kind that they should
    have. Does not follow links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            meaning = kind_of(entry.name, layout)
            if meaning is None:
                continue
            if isinstance(meaning, str):
                yield entry, meaning
                continue
            yield entry, "folder"
            if entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):  # renamed meanwhile by an active run
                    yield from layout_entries(Path(entry.path), meaning)


def written_files(run_dir: Path) -> set[str]:
    """Returns the relative paths of the regular files that a run has written, ignoring links."""
    return {
        os.path.relpath(entry.path, run_dir)
        for entry, kind in layout_entries(run_dir)
        if kind == "file" and entry.is_file(follow_symlinks=False)
    }


def partial_of(folder: Path) -> Path:
    """Returns the path of a folder while it is incomplete."""
    return folder.with_name(f".{folder.name}.partial")


def refuse_foreign(folder: Path, layout: Layout = {**RUN, **SWEEP}) -> None:  # noqa: B006
    """Raises `ConfigError` if a link or special file stands where a run writes its files, or
    something else where it writes a link.

    Must be called before a command opens or creates anything in a directory that may have been
    used.
    """
    if not folder.is_dir():
        return
    with os_errors_as(ConfigError):
        for entry, kind in layout_entries(folder, layout):
            if entry.is_symlink() and kind != "link":
                raise ConfigError(
                    f"{entry.path} is a link to {Path(entry.path).resolve()}, and a run writes and "
                    f"deletes a {kind} of its own there: move it away. To keep a run on another "
                    "disk, move its whole directory, which may be a link"
                )
            if kind == "link" and not entry.is_symlink():
                raise ConfigError(
                    f"{entry.path} is not a link, and a run writes one there, as in a copy that "
                    "follows links (scp -r): copy the run again with its links (rsync -a, tar), or "
                    "make it a link to the folder of equal content beside it"
                )
            if kind == "file" and not entry.is_file():
                raise ConfigError(
                    f"{entry.path} is not a regular file, and a run writes one there: move it away"
                )


def remove_files(folder: Path, layout: Layout, *, keep: Collection[str] = ()) -> None:
    """Removes the files in the layout, except those to `keep`."""
    for entry, _ in [*layout_entries(folder, layout)]:
        if entry.name not in keep and entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink(missing_ok=True)


def remove_attempt(run_dir: Path) -> None:
    """Removes the files of an attempt that has no checkpoint, except those in `KEPT`."""
    if not (run_dir / SETTINGS).is_file():
        return
    for entry, kind in [*layout_entries(run_dir)]:
        if kind != "folder" and entry.name not in KEPT:
            Path(entry.path).unlink()
    log.info("removed an attempt without a checkpoint; the run starts over")
