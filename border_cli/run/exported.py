"""The folder of an exported policy as it is read: nothing in it can run code, whoever wrote it.

Links, pickles, files that are not as they were written, and other versions are refused by name.
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

from border_cli.errors import CheckpointError, MissingPackage, reachable
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
    """What its `policy.json` says, and the way to the files that it names."""

    place: Path
    content: Mapping[str, Any]  # of policy.json

    def read(self, name: str) -> bytes:
        """A file, which is as it was written; raises CheckpointError."""
        path = self.place / name
        with reachable(CheckpointError):
            content = read_bytes(path, MOST_NBYTES)
        if hashlib.sha256(content).hexdigest() != self.content["files"].get(name):
            raise CheckpointError(
                f"{path} is damaged: its checksum is not that of {POLICY_JSON} ({len(content):,} "
                "bytes; a copy may have been cut off, or be a Git LFS pointer)"
            )
        return content

    def arrays(self, name: str = POLICY_NPZ) -> dict[str, NDArray[Any]]:
        """The arrays of a .npz file."""
        return self._made_of(name, lambda file: dict(np.load(io.BytesIO(file), allow_pickle=False)))

    def weights(self) -> dict[str, Any]:
        """All that `Agent.load_weights` takes; needs safetensors."""
        try:
            from safetensors.torch import load
        except ImportError as error:
            raise MissingPackage(str(self.place / MODEL), EXTRA) from error
        found = dict(self.content["semantics"])
        for name, tensor in self._made_of(MODEL, load).items():
            part, _, rest = name.partition(".")
            found.setdefault(part, {})[rest] = tensor
        return found

    def _made_of(self, name: str, load: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        content = self.read(name)
        try:
            return load(content)
        except Exception as error:  # each package has its own
            raise CheckpointError(f"{self.place / name} cannot be read: {error}") from error


def opened_folder(place: Path) -> ExportedFolder:
    """An exported policy; raises CheckpointError where it is none, or is not to be trusted."""
    with reachable(CheckpointError):
        entries = sorted(place.iterdir())
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
    path = place / POLICY_JSON
    content = read_json(path)
    known = [content.get(each) for each in ("format", "version")]
    if known != [FORMAT, VERSION] or not {"files", "semantics"} <= content.keys():
        raise CheckpointError(
            f"{path} has format {known[0]!r}, version {known[1]!r}; this version of border_cli "
            f"reads {FORMAT!r}, version {VERSION}, with its files and semantics"
        )
    return ExportedFolder(place, content)
