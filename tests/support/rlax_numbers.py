"""float64 results of DeepMind's rlax, written by `agent/make_rlax_numbers.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from border_cli.nn.arrays import AnyTensor
from border_cli.nn.batch import TensorBatch

NUMBERS = Path(__file__).parents[1] / "agent" / "rlax.json"


def of_rlax(case: str, wrap: Callable[[Any], AnyTensor] = torch.from_numpy) -> dict[str, AnyTensor]:
    """Returns the inputs and outputs of rlax for a case, by name."""
    arrays = json.loads(NUMBERS.read_text(encoding="utf-8"))[case]
    return {name: wrap(np.array(array)) for name, array in arrays.items()}


def transitions_of(case: dict[str, AnyTensor]) -> TensorBatch:
    """Returns the transitions of a case, without observations."""
    names = "action", "reward", "discount", "weight"
    return TensorBatch(obs=None, next_obs=None, **{name: case[name][:, None] for name in names})


def weighted_mean(case: dict[str, AnyTensor], losses: str) -> float:
    """Returns the mean of the losses times the weights of the case."""
    return float((case["weight"] * case[losses]).mean())
