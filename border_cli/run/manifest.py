"""The manifest that seals a checkpoint: every file that belongs to it, with its checksum.

A command that looks for checkpoints and verifies them loads no numpy with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.files import checksum, read_bytes, write_text

MANIFEST = "manifest.json"
FORMAT = 3
FOLDER = "replay"  # of the transitions, beside the checkpoints
SHARED = ".shared.npy"  # the end of the name of a file beside those of the blocks
OTHER_SUM = "its checksum does not match the manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows `first` … `end` of the replay buffer, in one file per block, and what they share."""

    first: int
    end: int
    files: Mapping[str, str]  # name in checkpoints/replay: SHA-256, in the order of the blocks

    @property
    def shared(self) -> str | None:
        """The file of what its rows share."""
        return next((name for name in self.files if name.endswith(SHARED)), None)

    @property
    def blocks(self) -> list[str]:
        """The files that have an entry for each row."""
        return [name for name in self.files if not name.endswith(SHARED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRows:
    """The transitions of a replay buffer; the first chunk may begin before them."""

    first: int
    end: int
    capacity: int
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
    """Completes the folder: its manifest names all files that it holds now."""
    files = sorted(folder.iterdir())
    manifest = Manifest(
        sequence=sequence,
        versions=versions,
        sha256={each.name: checksum(each) for each in files},
        replay=replay,
    )
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Completes the folder, or replaces its manifest atomically."""
    replay = manifest.replay
    chunks = replay and [
        {"first": each.first, "end": each.end, "files": dict(each.files)} for each in replay.chunks
    ]
    content = {
        "format": FORMAT,
        "sequence": manifest.sequence,
        "versions": dict(manifest.versions),
        "sha256": dict(manifest.sha256),
        "replay": replay
        and {
            "first": replay.first,
            "end": replay.end,
            "capacity": replay.capacity,
            "chunks": chunks,
        },
    }
    # Without `indent`, which would be slow: there may be thousands of chunks.
    write_text(folder / MANIFEST, json.dumps({**content, "checksum": _checksum(content)}))


def read_manifest(folder: Path) -> Manifest:
    """Raises `CheckpointError` where it is missing, damaged, of another format, or names a file
    outside the folders of checkpoints."""
    path = folder / MANIFEST
    content = read_json(path)
    found = content.pop("format", None)
    if found != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {found}, of another version of border_cli; this one "
            f"reads {FORMAT}"
        )
    if content.pop("checksum", None) != _checksum({"format": found, **content}):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its entries")
    try:
        return _manifest(content)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint manifest: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; raises `CheckpointError` where it is damaged."""
    try:
        content = json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} cannot be read: it is not a JSON object")
    return content


def _manifest(content: Mapping[str, Any]) -> Manifest:
    replay = content["replay"]
    return Manifest(
        sequence=int(content["sequence"]),
        versions=dict(content["versions"]),
        sha256=_sums(content["sha256"]),
        replay=None if replay is None else _saved_rows(replay),
    )


def _saved_rows(content: Mapping[str, Any]) -> SavedRows:
    chunks = tuple(
        Chunk(first=int(each["first"]), end=int(each["end"]), files=_sums(each["files"]))
        for each in content["chunks"]
    )
    rows = SavedRows(
        first=int(content["first"]),
        end=int(content["end"]),
        capacity=int(content["capacity"]),
        chunks=chunks,
    )
    ends = [chunks[0].first if chunks else rows.end, *(each.end for each in chunks)]
    firsts = [*(each.first for each in chunks), rows.end]
    rising = all(each.first < each.end for each in chunks)
    if ends != firsts or not rising or not 0 <= ends[0] <= rows.first <= rows.end:
        raise ValueError(f"its chunks do not cover rows {rows.first} to {rows.end}")
    return rows


def _sums(content: Mapping[str, Any]) -> dict[str, str]:
    """Names and checksums; a name is a plain one, so that nothing outside a folder is read."""
    sums = {str(name): str(checksum) for name, checksum in content.items()}
    for name in sums:
        if name.startswith(".") or any(each in name for each in "/\\\0:"):
            raise ValueError(f"{name!r} is not a plain file name")
    return sums


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def verify(folder: Path) -> None:
    """Raises `CheckpointError` naming the first file that is not as it was written."""
    verify_files(folder, read_manifest(folder))


def verify_files(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.sha256.items():
        verify_file(folder / name, expected)


def verify_file(path: Path, expected: str) -> None:
    """Raises `CheckpointError` where the file is not as it was written."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        found = checksum(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if found != expected:
        raise CheckpointError(f"{path} is damaged: {OTHER_SUM}")
