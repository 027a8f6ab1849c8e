"""float64 results of DeepMind's rlax, written by `agent/make_rlax_numbers.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TensorBatch

NUMBERS = Path(__file__).parents[1] / "agent" / "rlax.json"


def of_rlax(case: str) -> dict[str, Tensor]:
    """Returns the inputs and outputs of rlax for a case, by name."""
    arrays = json.loads(NUMBERS.read_text(encoding="utf-8"))[case]
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def transitions_of(case: dict[str, Tensor]) -> TensorBatch:
    """Returns the transitions of a case, without observations."""
    names = "action", "reward", "discount", "weight"
    empty = torch.zeros(0)
    return TensorBatch(obs=empty, next_obs=empty, **{name: case[name][:, None] for name in names})


def weighted_mean(case: dict[str, Tensor], losses: str) -> float:
    """Returns the mean of the losses times the weights of the case."""
    return float((case["weight"] * case[losses]).mean())
