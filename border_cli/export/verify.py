"""Every format of an exported policy against border-eval's policy on the same observations.

What a format needs is imported by the function that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.raw_values import translator_of
from border_cli.errors import CheckpointError, MissingPackage
from border_cli.export.form import PolicyForm
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

TOLERANCE = 1e-5  # of values and actions, relative where they are above 1
OBSERVATION = "observation"  # or observation.KEY of a Dict

Raw: TypeAlias = Any  # observations as the environment gives them, [N, …] each


class Answer(NamedTuple):
    """What a policy does on N observations."""

    action: NDArray[Any]  # [N, …] as the environment takes it
    values: NDArray[np.float32] | None  # [N, n]  what it was chosen by, where the format tells


Run: TypeAlias = Callable[[ExportedFolder, PolicyForm, Raw], Answer]


def verified(folder: ExportedFolder) -> list[str]:
    """A line for each format that does the same; raises CheckpointError for the first that does
    not, with its file and row."""
    form, kept = PolicyForm.from_json(folder.content), folder.arrays(VERIFICATION)
    raw: Raw = kept.get(OBSERVATION)
    if raw is None:
        prefix = f"{OBSERVATION}."
        raw = {key.removeprefix(prefix): kept[key] for key in kept if key.startswith(prefix)}
    lines = []
    for name, run in FORMATS.items():
        if name in folder:
            most = _difference(f"{folder.place / name}", run(folder, form, raw), kept)
            lines.append(f"{name}: {counted(len(kept['action']), 'observation')}, {most:.1e} apart")
    return lines


def _difference(name: str, answer: Answer, kept: Mapping[str, NDArray[Any]]) -> float:
    """The largest difference; raises CheckpointError where it is too large."""
    most, expected, decided = 0.0, kept["action"], kept["decided"]
    pairs = [("action", expected[decided], answer.action[decided])]
    if answer.values is not None:
        pairs.append(("values", kept["values"], answer.values))
    for what, ours, theirs in pairs:
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise CheckpointError(
                f"{name}: {what} is {theirs.dtype} {list(theirs.shape)}, not {ours.dtype} "
                f"{list(ours.shape)}"
            )
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        off = np.abs(ours - theirs) / _scale(what, ours)
        if off.size and not off.max() <= TOLERANCE:  # NaN is none, either
            row = int(np.unravel_index(np.argmax(off), off.shape)[0])
            raise CheckpointError(
                f"{name} differs from the policy of the run: {what} of row {row} of {VERIFICATION} "
                f"is {theirs[row].tolist()}, not {ours[row].tolist()}"
            )
        most = max(most, float(off.max(initial=0.0)))
    return most


def _scale(what: str, ours: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a difference is measured by: values of one observation are sums of like size."""
    sizes = np.abs(ours)
    if what == "values" and sizes.size:
        sizes = sizes.max(axis=1, keepdims=True)
    return np.maximum(1, sizes)


def _in_numpy(folder: ExportedFolder, form: PolicyForm, raw: Raw) -> Answer:
    translator, policy = translator_of(form.spec), numpy_policy(folder)
    rows = translator.observations(raw, translator.batch_size(raw) or 0)
    values, action = policy.values_and_actions(rows)
    return Answer(translator.actions(action), values)


def _in_onnx(folder: ExportedFolder, form: PolicyForm, raw: Raw) -> Answer:
    del form
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackage(f"to verify {POLICY_ONNX}", EXTRA) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        folder.read(POLICY_ONNX), options, providers=["CPUExecutionProvider"]
    )
    given = raw if isinstance(raw, dict) else {OBSERVATION: raw}
    return Answer(*session.run(["action", "values"], given))


def _in_torch(folder: ExportedFolder, form: PolicyForm, raw: Raw) -> Answer:
    from border_cli.api import policy_of_run

    del form
    policy = policy_of_run(folder.place, None, env=None, trust=False)
    return Answer(policy.act(raw), None)


FORMATS: Mapping[str, Run] = {POLICY_NPZ: _in_numpy, POLICY_ONNX: _in_onnx, MODEL: _in_torch}
