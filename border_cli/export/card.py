"""The model card of an exported policy, in the form of Hugging Face's model index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from border_cli import __version__
from border_cli.core.interfaces import Evaluation
from border_cli.export.form import PolicyForm
from border_cli.run.exported import MODEL, POLICY_NPZ, POLICY_ONNX, VERIFICATION

FILES = {
    "policy.json": "spaces, encodings, network and greedy choice; the SHA-256 of every other file",
    POLICY_NPZ: "what acts in numpy alone",
    POLICY_ONNX: "from raw observations to raw actions, for ONNX runtimes",
    MODEL: "all weights, also those of the critics, to train on from",
    VERIFICATION: "observations, and what the policy does on them",
    "resolved.yaml": "every setting of the run",
    "film.mp4": "an episode",
}
ANYWHERE = """
```python
from border_cli import load_policy  # with policy.npz numpy is enough

policy = load_policy("DIR")
action = policy.act(observation)
```
"""
IN_ONNX = """
```python
import onnxruntime

session = onnxruntime.InferenceSession("DIR/policy.onnx")
action, values = session.run(None, {INPUTS})  # N observations each
```
"""
IN_BORDER = """
```sh
border-eval DIR episodes=100
border-train --from DIR init_from=DIR
```
"""


def card(form: PolicyForm, evaluation: Evaluation, about: Mapping[str, Any], folder: Path) -> str:
    """`README.md` for these files. `about`: facts of the run, and the seed of the episodes."""
    returns = np.array(evaluation.returns)
    score = f"{returns.mean():.2f} +/- {returns.std():.2f}"
    name, episodes = f"{form.agent}-{form.spec.id}", len(returns)
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": form.spec.id, "type": form.spec.id},
        "metrics": [
            {"type": "mean_reward", "value": score, "name": "mean_reward", "verified": False}
        ],
    }
    tags = ["reinforcement-learning", "deep-reinforcement-learning", form.spec.id, form.agent]
    front = {
        "library_name": "border_cli",
        "tags": [*tags, "border_cli"],
        "model-index": [{"name": name, "results": [result]}],
    }
    listed = "\n".join(
        f"| `{each}` | {meaning} |"
        for each, meaning in FILES.items()
        if each == "policy.json" or (folder / each).exists()
    )
    facts = "\n".join(f"| {key} | {_cell(value)} |" for key, value in about.items())
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---

# {name}

A policy of `agent={form.agent}` for `{form.spec.id}`, trained and exported by border_cli
{__version__}. Return over {episodes} fresh episodes, greedily: **{score}** (least
{returns.min():g}, greatest {returns.max():g}; the deviation is that of the episodes).

## Use
{ANYWHERE}{_in_onnx(form) if (folder / POLICY_ONNX).exists() else ""}{IN_BORDER}
Observations and actions are as the environment has them: scaling, one-hot encodings, statistics,
masks and action bounds are inside.

## Training

| | |
| --- | --- |
{facts}

## Files

| file | holds |
| --- | --- |
{listed}
"""


def _in_onnx(form: PolicyForm) -> str:
    assert form.spec.raw is not None
    parts = getattr(form.spec.raw.observation, "parts", {"observation": None})
    inputs = ", ".join(f"{key!r}: {key if key.isidentifier() else '…'}" for key in parts)
    return IN_ONNX.replace("INPUTS", inputs)


def _cell(value: object) -> str:
    """Text in a cell of a table, which it cannot leave."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
