"""The manifest that seals a checkpoint: every file that belongs to it, with its checksum.

A command that looks for checkpoints and verifies them loads no numpy with it.
"""

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
FORMAT = 4
FOLDER = "replay"  # of the transitions, beside the checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The file of rows `first` … `end` of the replay buffer."""

    first: int
    end: int
    name: str  # in checkpoints/replay
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRows:
    """The transitions of a replay buffer; the first chunk may begin before them."""

    first: int
    end: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of one `manifest.json`."""

    sequence: int  # grows by one with every checkpoint of a run
    versions: Mapping[str, str]
    sha256: Mapping[str, str]  # of every other file of the folder
    replay: SavedRows | None


def seal(
    folder: Path,
    *,
    sequence: int,
    versions: Mapping[str, str],
    replay: SavedRows | None,
) -> None:
    """Completes the folder: its files survive a crash, and its manifest names them all."""
    files = sorted(folder.iterdir())
    for each in files:
        sync(each)
    sums = {each.name: checksum(each) for each in files}
    write_manifest(
        folder, Manifest(sequence=sequence, versions=versions, sha256=sums, replay=replay)
    )
    sync(folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Completes the folder, or replaces its manifest atomically."""
    content = {"format": FORMAT, **asdict(manifest)}
    # Without `indent`, which would be slow: there may be thousands of chunks.
    write_text(folder / MANIFEST, json.dumps({**content, "checksum": _checksum(content)}))


def read_manifest(folder: Path) -> Manifest:
    """Raises `CheckpointError` where it is missing, damaged, or of another format."""
    path = folder / MANIFEST
    content = read_json(path)
    found = content.get("format")
    if found != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {found}, of another version of border_cli; this one "
            f"reads {FORMAT}"
        )
    if content.pop("checksum", None) != _checksum(content):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its entries")
    del content["format"]
    replay = content["replay"]
    if replay is not None:
        chunks = tuple(Chunk(**each) for each in replay["chunks"])
        content["replay"] = SavedRows(**{**replay, "chunks": chunks})
    return Manifest(**content)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Within the block a file that is not there or is damaged raises `CheckpointError`."""
    try:
        yield
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def read_json(
    path: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None
) -> dict[str, Any]:
    """A JSON object; raises `CheckpointError` where it is damaged."""
    with readable(path):
        content = json.loads(read_bytes(path), object_hook=object_hook)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} cannot be read: it is not a JSON object")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def verify(folder: Path) -> Manifest:
    """The manifest; raises `CheckpointError` naming the first file that is not as it was."""
    manifest = read_manifest(folder)
    for name, expected in manifest.sha256.items():
        verify_file(folder / name, expected)
    return manifest


def verify_file(path: Path, expected: str) -> None:
    """Raises `CheckpointError` where the file is not as it was written."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    with readable(path):
        found = checksum(path)
    if found != expected:
        raise CheckpointError(f"{path} is damaged: its checksum does not match the manifest")
