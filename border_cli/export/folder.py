"""The folder of an exported policy as it is read: nothing in it can run code, whoever wrote it.

Links, pickles, files that are not as they were written, and other versions are refused by name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import CheckpointError, reachable
from border_cli.export.form import FORMAT, VERSION, PolicyForm
from border_cli.system.files import read_bytes

POLICY_JSON, POLICY_NPZ = "policy.json", "policy.npz"
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".npy")
MOST_NBYTES = 2**32


def is_exported(place: Path) -> bool:
    """Whether a folder is one of these."""
    return (place / POLICY_JSON).is_file()


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """What `policy.json` says, and the way to the files that it names."""

    place: Path
    form: PolicyForm
    files: Mapping[str, str]  # their SHA-256

    def read(self, name: str) -> bytes:
        """A file, which is as it was written; raises CheckpointError."""
        path = self.place / name
        if name not in self.files:
            raise CheckpointError(f"{path} is not in {POLICY_JSON}, which names every file")
        with reachable(CheckpointError):
            content = read_bytes(path, MOST_NBYTES)
        if hashlib.sha256(content).hexdigest() != self.files[name]:
            raise CheckpointError(
                f"{path} is damaged: its checksum is not that of {POLICY_JSON} ({len(content):,} "
                "bytes; a copy may have been cut off, or be a Git LFS pointer)"
            )
        return content

    def arrays(self, name: str = POLICY_NPZ) -> dict[str, NDArray[Any]]:
        """The arrays of a .npz file."""
        with np.load(io.BytesIO(self.read(name)), allow_pickle=False) as found:
            return {str(key): found[key] for key in found.files}


def opened_folder(place: Path) -> ExportedFolder:
    """An exported policy; raises CheckpointError where it is none, or is not to be trusted."""
    with reachable(CheckpointError):
        for each in sorted(os.scandir(place), key=lambda each: each.name):
            _refuse_strange(each)
        text = read_bytes(place / POLICY_JSON)
    path = place / POLICY_JSON
    try:
        content = json.loads(text)
        named = content.get("format"), content.get("version")
    except (ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if named != (FORMAT, VERSION):
        raise CheckpointError(
            f"{path} has format {named[0]!r}, version {named[1]!r}; this version of border_cli "
            f"reads {FORMAT!r}, version {VERSION}"
        )
    try:
        files = {str(name): str(digest) for name, digest in content["files"].items()}
        return ExportedFolder(place, PolicyForm.from_json(content), files)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _refuse_strange(entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        raise CheckpointError(
            f"{entry.path} is a link, which an exported policy never has: copy the file itself "
            "there (from a model hub: snapshot_download(…, local_dir=…))"
        )
    if entry.name.endswith(PICKLES):
        raise CheckpointError(
            f"{entry.path} may be a pickle, which can run code and which an exported policy never "
            "has: remove it if the policy is yours, or do not use it"
        )
