"""Every format of an exported policy against border-eval's policy on the same observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.errors import CheckpointError, MissingPackage
from border_cli.export.numpy_policy import numpy_policy
from border_cli.run.exported import (
    EXTRA,
    MODEL,
    POLICY_NPZ,
    POLICY_ONNX,
    VERIFICATION,
    ExportedFolder,
)
from border_cli.words import counted

TOLERANCE = 1e-5  # of values and actions, relative to the largest of a row where that is above 1
OBSERVATION = "observation"  # or observation.KEY of a Dict

Raw: TypeAlias = Any  # observations as the environment gives them, [N, …] each
# What a policy does on them: `action` [N, …], and the `values` that chose it, [N, n].
Answer: TypeAlias = Mapping[str, NDArray[Any]]


def verified(folder: ExportedFolder) -> list[str]:
    """A line for each format that does the same; raises CheckpointError for the first that does
    not, with its file and row."""
    kept = folder.arrays(VERIFICATION)
    parts = {key.partition(".")[2]: kept[key] for key in kept if key.startswith(OBSERVATION)}
    lines = []
    for name in [each for each in FORMATS if each in folder.content["files"]]:
        worst = {}
        for what, theirs in FORMATS[name](folder, parts.get("", parts)).items():
            off = _apart(kept[what], theirs)  # [N]
            if what == "action":
                off = np.where(kept["decided"], off, 0)
            worst[what] = off.max()
            if not worst[what] <= TOLERANCE:  # NaN is none, either
                raise CheckpointError(
                    f"{folder.place / name} differs from the policy of the run: {what} by "
                    f"{worst[what]:.1e}, most in row {off.argmax()} of {VERIFICATION}"
                )
        rows, most = counted(len(kept["action"]), "observation"), max(worst.values())
        lines.append(f"{name}: {rows}, {most:.1e} apart")
    return lines


def _apart(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.float64]:
    """The largest difference in each row. [N]"""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return np.full(len(ours), np.inf)
    ours, theirs = (each.astype(np.float64).reshape(len(each), -1) for each in (ours, theirs))
    off: NDArray[np.float64] = np.abs(ours - theirs).max(1) / np.abs(ours).max(1).clip(min=1)
    return off


def _in_numpy(folder: ExportedFolder, raw: Raw) -> Answer:
    policy = numpy_policy(folder)
    loaded = LoadedPolicy(policy.act, policy.form.spec)
    values, action = policy.values_and_actions(loaded.rows(raw)[0])
    return {"action": loaded.actions(action), "values": values}


def _in_onnx(folder: ExportedFolder, raw: Raw) -> Answer:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackage(f"to verify {POLICY_ONNX}", EXTRA) from error
    session = onnxruntime.InferenceSession(folder.read(POLICY_ONNX))
    names = "action", "values"
    given = raw if isinstance(raw, dict) else {OBSERVATION: raw}
    return dict(zip(names, session.run(names, given), strict=True))


def _in_torch(folder: ExportedFolder, raw: Raw) -> Answer:
    from border_cli.api import policy_of_run

    return {"action": policy_of_run(folder.place, None, env=None, trust=False).act(raw)}


FORMATS: Mapping[str, Callable[[ExportedFolder, Raw], Answer]] = {
    POLICY_NPZ: _in_numpy,
    POLICY_ONNX: _in_onnx,
    MODEL: _in_torch,
}
