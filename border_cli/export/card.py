"""The model card of an exported policy, with metadata for Hugging Face's model index."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from border_cli import __version__
from border_cli.core.interfaces import Evaluation
from border_cli.export.form import PolicyForm

USE = """
```python
from border_cli import load_policy  # if there is a policy.npz, only numpy is needed

policy = load_policy("DIR")
action = policy.act(observation)
```

```python
import onnxruntime

session = onnxruntime.InferenceSession("DIR/policy.onnx")  # if it was exported
inputs = {"observation": observations}  # N observations; of a Dict, and for masks, one per key
action, values = session.run(None, inputs)
```

```sh
border-eval DIR episodes=100
border-train --from DIR init_from=DIR
```
"""
FILES = """\
| file, if exported | content |
| --- | --- |
| `policy.json` | spaces, encodings, network, greedy choice; the SHA-256 of the files |
| `policy.npz` | weights for acting with numpy alone |
| `policy.onnx` | a graph from raw observations to raw actions, for ONNX runtimes |
| `model.safetensors` | all weights including those of the critics, for further training |
| `verification.npz` | observations, and the policy's outputs and actions for them |
| `resolved.yaml` | all settings of the run |
| `film.mp4` | a film of an episode |
"""


def card(form: PolicyForm, evaluation: Evaluation, about: Mapping[str, Any], folder: str) -> str:
    """Returns the text of `README.md`. `about` contains facts about the run, `folder` is the name
    of the exported folder."""
    score = "{eval/return:.2f} +/- {eval/return_std:.2f}".format_map(evaluation.metrics)
    name, task = f"{form.agent}-{form.spec.id}", "reinforcement-learning"
    result = {
        "task": {"type": task, "name": task},
        "dataset": {"name": form.spec.id, "type": form.spec.id},
        "metrics": [
            {"type": "mean_reward", "value": score, "name": "mean_reward", "verified": False}
        ],
    }
    front = {
        "library_name": "border_cli",
        "tags": [task, "deep-reinforcement-learning", form.spec.id, form.agent, "border_cli"],
        "model-index": [{"name": name, "results": [result]}],
    }
    facts = "".join(f"| {key} | {_cell(value)} |\n" for key, value in about.items() if value)
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---

# {name}

A policy of `agent={form.agent}` for `{form.spec.id}`, trained and exported by border_cli
{__version__}. Return of the greedy policy over {len(evaluation.returns)} fresh episodes:
**{score}** (mean and standard deviation over episodes).

## Use
{USE.replace('"DIR', f'"{folder}').replace("DIR", shlex.quote(folder))}
Observations and actions are those of the environment: scaling, one-hot encodings, statistics,
masks and action bounds are part of the policy.

## Training

| | |
| --- | --- |
{facts}
## Files

{FILES}"""


def _cell(value: object) -> str:
    """Escapes text so that it cannot break out of a table cell."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
