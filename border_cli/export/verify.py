"""Compares every format of an exported policy with the run's policy on recorded observations."""

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
from border_cli.words import pluralize

TOLERANCE = 1e-5  # for values and actions; relative to a row's largest value if that is above 1
OBSERVATION = "observation"  # array name; observation.KEY for the parts of a Dict

Raw: TypeAlias = Any  # raw observations of the environment: an array [N, …], or a dict of arrays
# The outputs of a policy: `action` [N, …], and the `values` that determine it, [N, n].
Answer: TypeAlias = Mapping[str, NDArray[Any]]


def verify_export(folder: ExportedFolder) -> list[str]:
    """Returns a line of text per verified format. Raises CheckpointError for the first format that
    differs, with its file and row."""
    saved = folder.arrays(VERIFICATION)
    parts = {key.partition(".")[2]: saved[key] for key in saved if key.startswith(OBSERVATION)}
    lines = []
    for name in [file for file in FORMATS if file in folder.content["files"]]:
        worst = {}
        for quantity, outputs in FORMATS[name](folder, parts.get("", parts)).items():
            error = _row_errors(saved[quantity], outputs)  # [N]
            if quantity == "action":
                error = np.where(saved["decided"], error, 0)
            worst[quantity] = error.max()
            if not worst[quantity] <= TOLERANCE:  # also true for NaN
                raise CheckpointError(
                    f"{folder.path / name} differs from the policy of the run: {quantity} by "
                    f"{worst[quantity]:.1e}, most in row {error.argmax()} of {VERIFICATION}"
                )
        rows, most = pluralize(len(saved["action"]), "observation"), max(worst.values())
        lines.append(f"{name}: {rows}, {most:.1e} apart")
    return lines


def _row_errors(saved: NDArray[Any], actual: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the largest difference in each row, relative as in `TOLERANCE`; infinite if shapes or
    dtypes differ. [N]"""
    if (saved.shape, saved.dtype) != (actual.shape, actual.dtype):
        return np.full(len(saved), np.inf)
    saved, actual = (array.astype(np.float64).reshape(len(array), -1) for array in (saved, actual))
    errors: NDArray[np.float64] = np.abs(saved - actual).max(1) / np.abs(saved).max(1).clip(min=1)
    return errors


def _run_numpy(folder: ExportedFolder, raw: Raw) -> Answer:
    policy = numpy_policy(folder)
    loaded = LoadedPolicy(policy.act, policy.form.spec)
    values, action = policy.values_and_actions(loaded.rows(raw)[0])
    return {"action": loaded.actions(action), "values": values}


def _run_onnx(folder: ExportedFolder, raw: Raw) -> Answer:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackage(f"to verify {POLICY_ONNX}", EXTRA) from error
    session = onnxruntime.InferenceSession(folder.read(POLICY_ONNX))
    names = "action", "values"
    inputs = raw if isinstance(raw, dict) else {OBSERVATION: raw}
    return dict(zip(names, session.run(names, inputs), strict=True))


def _run_torch(folder: ExportedFolder, raw: Raw) -> Answer:
    from border_cli.api import policy_of_run

    return {"action": policy_of_run(folder.path, None, env=None, trust=False).act(raw)}


FORMATS: Mapping[str, Callable[[ExportedFolder, Raw], Answer]] = {
    POLICY_NPZ: _run_numpy,
    POLICY_ONNX: _run_onnx,
    MODEL: _run_torch,
}
