"""The manifest that completes a checkpoint: a list of its files and their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.errors import CheckpointError
from border_cli.system.files import checksum, read_bytes, sync, write_text

MANIFEST = "manifest.json"
FORMAT = 5
REPLAY_FOLDER = "replay"  # directory of the transitions, next to the checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The file of rows `first` to `end` (exclusive) of the replay buffer."""

    first: int
    end: int
    name: str  # file name in checkpoints/replay
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRows:
    """The saved rows of a replay buffer. The first chunk may start before `first`."""

    first: int
    end: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a `manifest.json`."""

    sequence: int  # increases by one with every checkpoint of a run
    versions: Mapping[str, str]
    sha256: Mapping[str, str]  # checksums of all other files in the folder
    replay: SavedRows | None


def seal(
    folder: Path,
    *,
    sequence: int,
    versions: Mapping[str, str],
    replay: SavedRows | None,
) -> None:
    """Syncs the files of a folder to disk and writes the manifest, which lists all of them."""
    files = sorted(folder.iterdir())
    for file in files:
        sync(file)
    sums = {file.name: checksum(file) for file in files}
    write_manifest(
        folder, Manifest(sequence=sequence, versions=versions, sha256=sums, replay=replay)
    )
    sync(folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Atomically writes or replaces the manifest of a folder."""
    content = {"format": FORMAT, **asdict(manifest)}
    # No `indent`, which is slow: there may be thousands of chunks.
    write_text(folder / MANIFEST, json.dumps({**content, "checksum": _checksum(content)}))


def read_manifest(folder: Path) -> Manifest:
    """Reads a manifest; raises `CheckpointError` if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    content = read_json(path)
    actual = content.get("format")
    if actual != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {actual}, written by another version of border_cli; "
            f"this one reads {FORMAT}"
        )
    if content.pop("checksum", None) != _checksum(content):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its entries")
    del content["format"]
    replay = content["replay"]
    if replay is not None:
        chunks = tuple(Chunk(**chunk) for chunk in replay["chunks"])
        content["replay"] = SavedRows(**{**replay, "chunks": chunks})
    return Manifest(**content)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Converts errors of reading a file within the block to `CheckpointError`."""
    try:
        yield
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def read_json(
    path: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None
) -> dict[str, Any]:
    """Reads a JSON object; raises `CheckpointError` if the file is missing or damaged."""
    with readable(path):
        content = json.loads(read_bytes(path), object_hook=object_hook)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} cannot be read: it is not a JSON object")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def verify(folder: Path) -> Manifest:
    """Checks all files of a checkpoint and returns its manifest. Raises `CheckpointError` naming
    the first file that is missing or damaged."""
    manifest = read_manifest(folder)
    for name, expected in manifest.sha256.items():
        verify_file(folder / name, expected)
    return manifest


def verify_file(path: Path, expected: str) -> None:
    """Raises `CheckpointError` if the file is missing or does not have the expected checksum."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    with readable(path):
        actual = checksum(path)
    if actual != expected:
        raise CheckpointError(f"{path} is damaged: its checksum does not match the manifest")
