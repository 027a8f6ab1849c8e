"""Reads the folder of an exported policy, which may be untrusted: nothing in it can run code.

Links, pickles, files with a wrong checksum and other versions are rejected.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import CheckpointError, MissingPackage, os_errors_as
from border_cli.run.manifest import read_json
from border_cli.system.files import POLICY_JSON, read_bytes

FORMAT, VERSION = "border_cli policy", 2
POLICY_NPZ, POLICY_ONNX, MODEL = "policy.npz", "policy.onnx", "model.safetensors"
VERIFICATION = "verification.npz"
EXTRA = "border-cli[export]"
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".npy")
MOST_NBYTES = 2**32


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """The content of `policy.json`, and access to the files that it lists."""

    path: Path
    content: Mapping[str, Any]

    def read(self, name: str) -> bytes:
        """Reads a file; raises CheckpointError if it is not exactly as exported."""
        path = self.path / name
        with os_errors_as(CheckpointError):
            content = read_bytes(path, MOST_NBYTES)
        if hashlib.sha256(content).hexdigest() != self.content["files"].get(name):
            raise CheckpointError(
                f"{path} is damaged: its checksum is not that of {POLICY_JSON} ({len(content):,} "
                "bytes; a copy may have been cut off, or be a Git LFS pointer)"
            )
        return content

    def arrays(self, name: str = POLICY_NPZ) -> dict[str, NDArray[Any]]:
        """Returns the arrays of a .npz file."""
        return self._parse(name, lambda file: dict(np.load(io.BytesIO(file), allow_pickle=False)))

    def weights(self) -> dict[str, Any]:
        """Returns the state that `Agent.load_weights` loads; requires safetensors."""
        try:
            from safetensors.numpy import load
        except ImportError as error:
            raise MissingPackage(str(self.path / MODEL), EXTRA) from error
        state = dict(self.content["semantics"])
        for name, array in self._parse(MODEL, load).items():
            part, _, rest = name.partition(".")
            state.setdefault(part, {})[rest] = array
        return state

    def _parse(self, name: str, load: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        content = self.read(name)
        try:
            return load(content)
        except Exception as error:  # each package raises its own errors
            raise CheckpointError(f"{self.path / name} cannot be read: {error}") from error


def open_export(folder: Path) -> ExportedFolder:
    """Opens an exported policy; raises CheckpointError if the folder is not one, or is not safe to
    read."""
    with os_errors_as(CheckpointError):
        entries = sorted(folder.iterdir())
    for entry in entries:
        if entry.is_symlink():
            raise CheckpointError(
                f"{entry} is a link, which an exported policy never has: copy the file itself "
                "there (from a model hub: snapshot_download(…, local_dir=…))"
            )
        if entry.suffix in PICKLES:
            raise CheckpointError(
                f"{entry} may be a pickle, which can run code and which an exported policy never "
                "has: remove it if the policy is yours, or do not use it"
            )
    path = folder / POLICY_JSON
    content = read_json(path)
    actual = [content.get(key) for key in ("format", "version")]
    if actual != [FORMAT, VERSION] or not {"files", "semantics"} <= content.keys():
        raise CheckpointError(
            f"{path} has format {actual[0]!r}, version {actual[1]!r}; this version of border_cli "
            f"reads {FORMAT!r}, version {VERSION}, with its files and semantics"
        )
    return ExportedFolder(folder, content)
