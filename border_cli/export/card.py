"""The model card of an exported policy, in the form of Hugging Face's model index."""

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
from border_cli import load_policy  # with policy.npz numpy is enough

policy = load_policy("DIR")
action = policy.act(observation)
```

```python
import onnxruntime

session = onnxruntime.InferenceSession("DIR/policy.onnx")  # where it was asked for
inputs = [each.name for each in session.get_inputs()]  # "observation", or the keys of a Dict
action, values = session.run(None, dict(zip(inputs, observations)))  # N observations each
```

```sh
border-eval DIR episodes=100
border-train --from DIR init_from=DIR
```
"""
FILES = """\
| file | holds |
| --- | --- |
| `policy.json` | spaces, encodings, network, greedy choice; the SHA-256 of the files |
| `policy.npz` | what acts in numpy alone |
| `policy.onnx` | from raw observations to raw actions, for ONNX runtimes |
| `model.safetensors` | all weights, also those of the critics, to train on from |
| `verification.npz` | observations, and what the policy does on them |
| `resolved.yaml` | every setting of the run |
| `film.mp4` | an episode, where it was asked for |
"""


def card(form: PolicyForm, evaluation: Evaluation, about: Mapping[str, Any], folder: str) -> str:
    """`README.md`; `about` has facts of the run, `folder` is the name of its directory."""
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
{__version__}. Return over {len(evaluation.returns)} fresh episodes, greedily: **{score}** (the
deviation is that of the episodes).

## Use
{USE.replace('"DIR', f'"{folder}').replace("DIR", shlex.quote(folder))}
Observations and actions are as the environment has them: scaling, one-hot encodings, statistics,
masks and action bounds are inside.

## Training

| | |
| --- | --- |
{facts}
## Files

{FILES}"""


def _cell(value: object) -> str:
    """Text in a cell of a table, which it cannot leave."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
