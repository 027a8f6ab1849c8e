"""The names of the files, directories and links that a run or a sweep writes.

Only what is written here by name is ever written to or removed; a link in its place refuses the
command.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from border_cli.errors import ConfigError, reachable
from border_cli.system.files import SETTINGS

log = logging.getLogger(__name__)

Kind = Literal["file", "folder", "link"]

TORN = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # left by a process that is killed as it writes


# The names that are ours in one folder, as patterns, and what each stands for: a file, a link, or a
# folder with such names in it. All else there is not ours.
Layout: TypeAlias = "Mapping[str, Literal['file', 'link'] | Layout]"

STEPS = r"(best-)?\d{10,}"  # folders of checkpoints

CHECKPOINT: Layout = {r"agent\.pt|(state|score|manifest)\.json|arrays\.npz": "file"}
REPLAY: Layout = {r"rows-\d{10,}-\d{10,}-[0-9a-f]{8}\.npy": "file"}
CHECKPOINTS: Layout = {
    "latest": "link",
    rf"{STEPS}|\.{STEPS}\.partial": CHECKPOINT,
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
    r"\.submitit": {},  # its launcher's own
}
TRIALS: Layout = {r"trial-\d+": {r"run\.lock": "file", r"seed-\d+": RUN}}
STUDY: Layout = {
    **SWEEP,
    r"(study|trials)\.json|best\.yaml": "file",
    **TRIALS,
    "best": TRIALS,
}


# What stays where a run starts over.
KEPT = (
    *("run.lock", "border-train.log", "output.log", "job.json", "job.yaml"),
    *("mlflow.json", "mlflow.jsonl", "wandb.json", "wandb.jsonl", "trackio.json", "trackio.jsonl"),
)


def meaning_of(name: str, layout: Layout) -> Literal["file", "link"] | Layout | None:
    """What a name of ours stands for; None where the name is not ours."""
    torn = TORN.fullmatch(name)
    name = torn[1] if torn else name
    return next((each for pattern, each in layout.items() if re.fullmatch(pattern, name)), None)


def entries_of_ours(folder: Path, layout: Layout = RUN) -> Iterator[tuple[os.DirEntry[str], Kind]]:
    """All that has a name of ours, and what it should be; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            meaning = meaning_of(entry.name, layout)
            if meaning is None:
                continue
            if isinstance(meaning, str):
                yield entry, meaning
                continue
            yield entry, "folder"
            if entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):  # a run that goes on has renamed it since
                    yield from entries_of_ours(Path(entry.path), meaning)


def written_files(run_dir: Path) -> set[str]:
    """The regular files that a run has written, behind no link, by their paths in it."""
    return {
        os.path.relpath(entry.path, run_dir)
        for entry, kind in entries_of_ours(run_dir)
        if kind == "file" and entry.is_file(follow_symlinks=False)
    }


def partial_of(place: Path) -> Path:
    """Where a folder is until it is complete."""
    return place.with_name(f".{place.name}.partial")


def refuse_foreign(folder: Path, layout: Layout = {**RUN, **SWEEP}) -> None:  # noqa: B006
    """Raises `ConfigError` where something else, such as a link, has the name of a file or folder
    of ours.

    To be called before a command opens or creates anything in a directory that may have been used.
    """
    if not folder.is_dir():
        return
    with reachable(ConfigError):
        for entry, kind in entries_of_ours(folder, layout):
            if entry.is_symlink() and kind != "link":
                raise ConfigError(
                    f"{entry.path} is a link to {Path(entry.path).resolve()}, and a run writes and "
                    f"deletes a {kind} of its own there: move it away. To keep a run on another "
                    "disk, move its whole directory, which may be a link"
                )
            if kind == "file" and not entry.is_file():
                raise ConfigError(
                    f"{entry.path} is no regular file, and a run writes one there: move it away"
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
    for entry, kind in [*entries_of_ours(run_dir)]:
        if kind != "folder" and entry.name not in KEPT:
            Path(entry.path).unlink()
    log.info("removed an attempt without a checkpoint; the run starts over")
