"""Which checkpoints a run directory has, and which one a name means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from border_cli.errors import CheckpointError, ConfigError, reachable
from border_cli.run.layout import partial_of
from border_cli.run.manifest import MANIFEST, Manifest, read_json, read_manifest, verify
from border_cli.system.files import SETTINGS, settings_of

T = TypeVar("T")


def folder_name(opt_steps: int) -> str:
    """The name of the checkpoint of so many optimisation steps."""
    return f"{opt_steps:010d}"


def is_complete(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()  # it is written last


def complete(folder: Path) -> dict[int, Path]:
    """The complete checkpoints of a folder by their steps, in rising order; no best models.

    One that was to replace another when the process was killed stands in the place of that.
    """
    found = {}
    for each in sorted(folder.glob("*"), reverse=True):  # hidden names come last
        named = re.fullmatch(r"\.?([0-9]{10,})(\.partial)?", each.name)
        if named and is_complete(each):
            found[int(named[1])] = each
    return dict(sorted(found.items()))


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


def _kept(folder: Path, opt_steps: int) -> Kept:
    try:
        return Kept(folder, opt_steps, read_manifest(folder))
    except CheckpointError:
        return Kept(folder, opt_steps, None)


def by_age(folder: Path) -> list[Kept]:
    """The complete checkpoints, the oldest first."""
    kept = [_kept(each, opt_steps) for opt_steps, each in complete(folder).items()]
    return sorted(kept, key=lambda each: each.age)


def resumable(run_dir: Path) -> list[Path]:
    """The complete checkpoints that a run may resume from, the newest first; not verified yet.

    Those whose manifest is damaged come before them, so that they are named in the log.
    """
    newest_first = by_age(run_dir / "checkpoints")[::-1]
    return [
        each.folder for each in sorted(newest_first, key=lambda each: each.manifest is not None)
    ]


def steps_saved(run_dir: Path) -> list[int]:
    """The optimisation steps of the complete checkpoints, in rising order."""
    return [*complete(run_dir / "checkpoints")]


@reachable(CheckpointError)
def find_run(place: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """The run directory, and which of its checkpoints, that `place` and `checkpoint` name.

    `place` is a run directory, or a checkpoint in one: `RUN/best`, `RUN/checkpoints/5000`. The
    checkpoint is None where neither names one. Raises `CheckpointError` for any other path, and
    `ConfigError` for two checkpoints.
    """
    named = _checkpoint_named_by(place)
    if named is not None:
        if checkpoint not in (None, named[1]):
            raise ConfigError(
                f"{place} is a checkpoint: remove checkpoint={checkpoint}, or use {named[0]}"
            )
        return named
    if settings_of(place).is_file():
        return place, checkpoint
    if not place.exists():
        raise CheckpointError(f"no such directory: {place}{run_around(place)}")
    hint = run_around(place) or f"; border-runs {place} lists the runs below it"
    raise CheckpointError(f"{place} is not a run directory: it has no {SETTINGS}{hint}")


def _checkpoint_named_by(place: Path) -> tuple[Path, str] | None:
    """The run directory, and the checkpoint of it that a path leads to; need not exist."""
    whole = place.absolute()
    folder, name = whole.parent, whole.name
    if name == "best" and (folder / SETTINGS).is_file():
        return folder, name
    if folder.name != "checkpoints" or not (folder.parent / SETTINGS).is_file():
        return None
    if name.isdecimal():
        return folder.parent, str(int(name))
    if name == "latest":
        return folder.parent, name
    return (folder.parent, "best") if whole == (folder.parent / "best").resolve() else None


def run_around(place: Path) -> str:
    """The run that a checkpoint or a file of it belongs to."""
    around = next((each for each in place.absolute().parents if (each / SETTINGS).is_file()), None)
    return f"; the run is {around}" if around else ""


@reachable(CheckpointError)
def find_checkpoint(run_dir: Path, which: str) -> Path:
    """The folder of `best`, `latest` or a number of optimisation steps; raises with what there is.

    The answer is the real folder, so that a link which moves on does not change what is read.
    """
    saved = complete(run_dir / "checkpoints")
    newest = next(reversed(saved.values()), None)
    places = {
        "best": _whole(run_dir / "best"),
        **{str(opt_steps): folder for opt_steps, folder in saved.items()},
        "latest": _whole(run_dir / "checkpoints" / "latest") or newest,
    }
    place = places.get(str(int(which)) if which.isdecimal() else which)
    if place is None:
        names = ", ".join(name for name, folder in places.items() if folder) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint {which} (choose from {names})")
    return place.resolve()


def _whole(place: Path) -> Path | None:
    """The complete folder behind a link, or the one that was to replace it."""
    folder = place.resolve()
    return next((each for each in (partial_of(folder), folder) if is_complete(each)), None)


@reachable(CheckpointError)
def find_weights(place: Path) -> Path:
    """The folder of the weights that a new run begins with: of a run directory its best model, else
    its latest checkpoint; or a checkpoint itself, which needs no saved settings."""
    folder = place.resolve()
    if is_complete(folder):
        return folder
    run_dir, which = find_run(place)
    best = "best" if is_complete(run_dir / "best") else "latest"
    return find_checkpoint(run_dir, which or best)


def read_model(find: Callable[[], Path], read: Callable[[Path], T]) -> tuple[Path, T]:
    """The folder that `find` finds, verified, and what `read` reads in it.

    A run that is training removes its checkpoints: where that happens meanwhile, `find` is called
    again. Raises `CheckpointError` where it finds none, or where one is damaged.
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
    """Score and optimisation steps of the best model; None without a whole one."""
    try:
        folder = find_checkpoint(run_dir, "best")
        verify(folder)
        document = read_json(folder / "score.json")
    except CheckpointError:
        return None
    return None if document["score"] is None else (document["score"], document["opt_steps"])
