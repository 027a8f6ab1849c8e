"""Checkpoints: complete or not there.

checkpoints/0000010000/        agent.pt  state.json  manifest.json, written last
checkpoints/best-0000007000/   the same, and score.json
checkpoints/latest, best       relative links to the newest and to the best
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Evaluation
from border_cli.run.files import (
    aside,
    checksum,
    partial,
    point_link,
    remove_folder,
    replace_folder,
    restore_folders,
    sync,
    write_json,
)
from border_cli.run.record import versions

FORMAT = 1
SaveState = Callable[[Mapping[str, Any], Path], None]


class CheckpointStore:
    """Writes the checkpoints of one run; owned by the learner's thread, the only one that writes.

    What an earlier process left half done in the same folder is put in order by the first save.
    """

    def __init__(self, run_dir: Path, *, keep: int, save_state: SaveState) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "checkpoints"
        self._keep = keep
        self._save_state = save_state
        self._versions = versions()
        self._in_order = False

    def save(self, state: Mapping[str, Any], counters: Mapping[str, float]) -> None:
        """Keeps a checkpoint named by `counters["opt_steps"]`, and drops the oldest."""
        opt_steps = int(counters["opt_steps"])
        self._write(_name(opt_steps), state, counters, {})
        point_link(self._folder / "latest", _name(opt_steps))
        # Higher numbers are of an earlier attempt in the same folder, hence older than all others.
        by_age = sorted(steps_saved(self._run_dir), key=lambda step: (step <= opt_steps, step))
        for old in by_age[: -self._keep]:
            remove_folder(self._folder / _name(old))

    def save_best(
        self, state: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; the one before it stays for whoever is reading it just now."""
        name = f"best-{_name(int(counters['opt_steps']))}"
        score = {"score": evaluation.score, **counters, **asdict(evaluation)}
        link = self._run_dir / "best"
        before = link.resolve().name
        self._write(name, state, counters, {"score.json": score})
        point_link(link, f"checkpoints/{name}")
        for old in self._folder.glob("best-*"):
            if old.name not in (name, before):
                remove_folder(old)

    def _write(
        self,
        name: str,
        state: Mapping[str, Any],
        counters: Mapping[str, float],
        more: Mapping[str, Any],
    ) -> None:
        self._folder.mkdir(exist_ok=True)
        if not self._in_order:
            restore_folders(self._folder)
            self._in_order = True
        final = self._folder / name
        new = partial(final)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            self._fill(new, state, {"state.json": counters, **more})
            replace_folder(new, final)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _fill(
        self, folder: Path, state: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._save_state(state, folder / "agent.pt")
        sync(folder / "agent.pt")
        for document, content in documents.items():
            write_json(folder / document, content)
        sums = {each.name: checksum(each) for each in sorted(folder.iterdir())}
        manifest = {"format": FORMAT, "versions": self._versions, "sha256": sums}
        write_json(folder / "manifest.json", manifest)
        sync(folder)


def _name(opt_steps: int) -> str:
    return f"{opt_steps:010d}"


def _complete(folder: Path) -> bool:
    return (folder / "manifest.json").is_file()  # it is written last


def steps_saved(run_dir: Path) -> list[int]:
    """The optimisation steps of the complete checkpoints, in rising order."""
    folder = run_dir / "checkpoints"
    if not folder.is_dir():
        return []
    numbered = [each for each in folder.iterdir() if each.name.isdecimal() and _complete(each)]
    return sorted(int(each.name) for each in numbered if each.name == _name(int(each.name)))


def find_checkpoint(run_dir: Path, which: str) -> Path:
    """The folder of `best`, `latest` or a number of optimisation steps; raises with what there is.

    The answer is the real folder, so that a link which moves on does not change what is read.
    """
    saved = steps_saved(run_dir)
    if which == "best":
        place = run_dir / "best"
    elif which == "latest":
        place = run_dir / "checkpoints" / "latest"
        if saved and not _complete(place):
            place = place.with_name(_name(saved[-1]))
    elif which.isdecimal():
        place = run_dir / "checkpoints" / _name(int(which))
    else:
        raise CheckpointError(f"checkpoint must be best, latest or a step, got {which!r}")
    folder = place.resolve()
    if not _complete(folder) and _complete(aside(folder)):
        return aside(folder)  # the process was killed while it replaced this one
    if not _complete(folder):
        known = [*(["best"] if _complete(run_dir / "best") else []), *saved]
        listed = ", ".join(map(str, known)) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint {which}. There: {listed}")
    return folder


def read_document(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of a checkpoint; raises where it is damaged."""
    path = folder / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} cannot be read: it holds no JSON object")
    return content


def verify(folder: Path) -> None:
    """Raises `CheckpointError` naming the first file that is not as it was written."""
    manifest = read_document(folder, "manifest.json")
    sums = manifest.get("sha256")
    if manifest.get("format") != FORMAT or not isinstance(sums, dict):
        raise CheckpointError(
            f"{folder} has checkpoint format {manifest.get('format')}, this version reads {FORMAT}"
        )
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        if _checksum(path) != expected:
            raise CheckpointError(f"{path} is damaged: its checksum differs from the manifest's")


def _checksum(path: Path) -> str:
    try:
        return checksum(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
