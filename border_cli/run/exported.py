"""The folder of an exported policy as it is read: nothing in it can run code, whoever wrote it.

Links, pickles, files that are not as they were written, and other versions are refused by name.
What reads weights is imported by the method that does.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import CheckpointError, MissingPackage, reachable
from border_cli.run.manifest import read_json
from border_cli.system.files import POLICY_JSON, read_bytes

FORMAT, VERSION = "border_cli policy", 1
POLICY_NPZ, POLICY_ONNX, MODEL = "policy.npz", "policy.onnx", "model.safetensors"
VERIFICATION = "verification.npz"
EXTRA = "border-cli[export]"
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".npy")
MOST_NBYTES = 2**32


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """What its `policy.json` says, and the way to the files that it names."""

    place: Path
    content: Mapping[str, Any]  # of policy.json

    def __contains__(self, name: str) -> bool:
        return name in self.content["files"]

    def read(self, name: str) -> bytes:
        """A file, which is as it was written; raises CheckpointError."""
        path = self.place / name
        if name not in self:
            raise CheckpointError(f"{self.place / POLICY_JSON} names no file {name}")
        with reachable(CheckpointError):
            content = read_bytes(path, MOST_NBYTES)
        if hashlib.sha256(content).hexdigest() != self.content["files"][name]:
            raise CheckpointError(
                f"{path} is damaged: its checksum is not that of {POLICY_JSON} ({len(content):,} "
                "bytes; a copy may have been cut off, or be a Git LFS pointer)"
            )
        return content

    def arrays(self, name: str = POLICY_NPZ) -> dict[str, NDArray[Any]]:
        """The arrays of a .npz file."""
        content = io.BytesIO(self.read(name))
        try:
            with np.load(content, allow_pickle=False) as found:
                return {str(key): found[key] for key in found.files}
        except ValueError as error:
            raise CheckpointError(f"{self.place / name} cannot be read: {error}") from error

    def weights(self) -> dict[str, Any]:
        """All that `Agent.load_weights` takes, in numpy arrays; needs safetensors."""
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load
        except ImportError as error:
            raise MissingPackage(str(self.place / MODEL), EXTRA) from error
        try:
            arrays = load(self.read(MODEL))
        except SafetensorError as error:
            raise CheckpointError(f"{self.place / MODEL} cannot be read: {error}") from error
        found: dict[str, Any] = dict(self.content["semantics"])
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            found.setdefault(part, {})[rest] = array
        return found


def opened_folder(place: Path) -> ExportedFolder:
    """An exported policy; raises CheckpointError where it is none, or is not to be trusted."""
    with reachable(CheckpointError):
        for entry in sorted(os.scandir(place), key=lambda each: each.name):
            _refuse_strange(entry)
    path = place / POLICY_JSON
    content = read_json(path)
    named = content.get("format"), content.get("version")
    if named != (FORMAT, VERSION):
        raise CheckpointError(
            f"{path} has format {named[0]!r}, version {named[1]!r}; this version of border_cli "
            f"reads {FORMAT!r}, version {VERSION}"
        )
    if not all(isinstance(content.get(each), dict) for each in ("files", "semantics")):
        raise CheckpointError(f"{path} is damaged: it has no files or no semantics")
    return ExportedFolder(place, content)


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
