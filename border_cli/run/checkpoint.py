"""Checkpoints: complete or not there.

checkpoints/0000010000/        agent.pt  state.json  manifest.json, written last
checkpoints/best-0000007000/   the same, and score.json
checkpoints/latest, best       relative links to the newest and to the best
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Evaluation
from border_cli.run.files import checksum, point_link, sync_folder, write_json
from border_cli.run.record import versions

FORMAT = 1
SaveState = Callable[[Mapping[str, Any], Path], None]


class CheckpointStore:
    """Writes the checkpoints of one run; owned by the learner's thread."""

    def __init__(self, run_dir: Path, *, keep: int, save_state: SaveState) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "checkpoints"
        self._keep = keep
        self._save_state = save_state
        self._versions = versions()

    def save(self, state: Mapping[str, Any], counters: Mapping[str, float]) -> None:
        """Keeps a checkpoint named by `counters["opt_steps"]`, and drops the oldest."""
        name = f"{int(counters['opt_steps']):010d}"
        self._write(name, state, counters, {})
        point_link(self._folder / "latest", name)
        for old in steps_saved(self._run_dir)[: -self._keep]:
            shutil.rmtree(self._folder / f"{old:010d}")

    def save_best(
        self, state: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; a reader of the old one is not disturbed in between."""
        name = f"best-{int(counters['opt_steps']):010d}"
        score = {"score": evaluation.score, **counters, **asdict(evaluation)}
        self._write(name, state, counters, {"score.json": score})
        point_link(self._run_dir / "best", f"checkpoints/{name}")
        for old in self._folder.glob("best-*"):
            if old.name != name:
                shutil.rmtree(old)

    def _write(
        self,
        name: str,
        state: Mapping[str, Any],
        counters: Mapping[str, float],
        more: Mapping[str, Any],
    ) -> None:
        self._folder.mkdir(exist_ok=True)
        partial = self._folder / f".{name}.{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            self._fill(partial, state, {"state.json": counters, **more})
            final = self._folder / name
            if final.exists():
                shutil.rmtree(final)
            partial.rename(final)
            sync_folder(self._folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _fill(
        self, folder: Path, state: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._save_state(state, folder / "agent.pt")
        for document, content in documents.items():
            write_json(folder / document, content)
        sums = {each.name: checksum(each) for each in sorted(folder.iterdir())}
        manifest = {"format": FORMAT, "versions": self._versions, "sha256": sums}
        write_json(folder / "manifest.json", manifest)
        sync_folder(folder)


def steps_saved(run_dir: Path) -> list[int]:
    """The optimisation steps of the complete checkpoints, oldest first."""
    folder = run_dir / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(
        int(each.name)
        for each in folder.iterdir()
        if each.name.isdigit() and (each / "manifest.json").is_file()
    )


def find_checkpoint(run_dir: Path, which: str) -> Path:
    """The folder of `best`, `latest` or a number of optimisation steps; raises with what there is.

    The answer is the real folder, so that a link which moves on does not change what is read.
    """
    saved = steps_saved(run_dir)
    if which == "best":
        link = run_dir / "best"
    elif which == "latest":
        link = run_dir / "checkpoints" / (f"{saved[-1]:010d}" if saved else "latest")
    elif which.isdigit():
        link = run_dir / "checkpoints" / f"{int(which):010d}"
    else:
        raise CheckpointError(f"checkpoint must be best, latest or a step, got {which!r}")
    folder = link.resolve()
    if not (folder / "manifest.json").is_file():
        known = [*(["best"] if (run_dir / "best" / "manifest.json").is_file() else []), *saved]
        listed = ", ".join(map(str, known)) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint {which}. There: {listed}")
    return folder


def read_document(folder: Path, name: str) -> dict[str, Any]:
    """A JSON document of a checkpoint; raises where it is damaged."""
    path = folder / name
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return content


def verify(folder: Path) -> None:
    """Raises `CheckpointError` naming the first file that is not as it was written."""
    manifest = read_document(folder, "manifest.json")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {manifest.get('format')}, this version reads {FORMAT}"
        )
    for name, expected in manifest["sha256"].items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        if checksum(path) != expected:
            raise CheckpointError(f"{path} is damaged: its checksum differs from the manifest's")
