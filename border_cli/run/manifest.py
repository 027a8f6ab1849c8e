"""The manifest of a checkpoint: what it consists of, and how to tell that nothing changed.

It is written last, so a folder without one is not complete. `checksum` is that of all its other
entries, because a manifest may be damaged like every other file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.files import write_text

NAME = "manifest.json"
FORMAT = 2
READABLE = (1, FORMAT)  # format 1 held agent and counters only


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows `first` … `end` of the replay buffer, in one file per block."""

    first: int
    end: int
    files: Mapping[str, str]  # name in checkpoints/replay: SHA-256, in the order of the blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRows:
    """The rows that a replay buffer held; the first chunk may begin before them."""

    first: int
    end: int
    capacity: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of one `manifest.json`."""

    sequence: int  # grows by one with every checkpoint of a run
    versions: Mapping[str, str]
    config_sha256: str | None
    sha256: Mapping[str, str]  # of every other file of the folder
    replay: SavedRows | None
    format: int = FORMAT


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Completes the folder, or replaces its manifest at once."""
    replay = manifest.replay
    chunks = replay and [
        {"first": each.first, "end": each.end, "files": dict(each.files)} for each in replay.chunks
    ]
    content = {
        "format": manifest.format,
        "sequence": manifest.sequence,
        "versions": dict(manifest.versions),
        "config_sha256": manifest.config_sha256,
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
    write_text(folder / NAME, json.dumps({**content, "checksum": _checksum(content)}))


def read_manifest(folder: Path) -> Manifest:
    """Raises `CheckpointError` where it is missing, damaged, of another format, or names a file
    outside the folders of checkpoints."""
    path = folder / NAME
    content = read_json(path)
    found = content.pop("format", None)
    if found not in READABLE or isinstance(found, bool):
        raise CheckpointError(
            f"{folder} has checkpoint format {found}, but this version reads "
            f"{' and '.join(map(str, READABLE))}"
        )
    if found == FORMAT and content.pop("checksum", None) != _checksum({"format": found, **content}):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its entries")
    try:
        return _manifest(found, content)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint manifest: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; raises `CheckpointError` where it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} cannot be read: it is not a JSON object")
    return content


def _manifest(found: int, content: Mapping[str, Any]) -> Manifest:
    if found != FORMAT:
        return Manifest(
            format=found,
            sequence=0,
            versions={},
            config_sha256=None,
            sha256=_sums(content["sha256"]),
            replay=None,
        )
    replay = content["replay"]
    return Manifest(
        sequence=int(content["sequence"]),
        versions=dict(content["versions"]),
        config_sha256=content["config_sha256"],
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
