"""Answers of DeepMind's rlax, in double precision, as `agent/make_rlax_numbers.py` wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TensorBatch

NUMBERS = Path(__file__).parents[1] / "agent" / "rlax.json"


def of_rlax(case: str) -> dict[str, Tensor]:
    """Inputs and what rlax made of them, by row."""
    arrays = json.loads(NUMBERS.read_text(encoding="utf-8"))[case]
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def transitions_of(case: dict[str, Tensor]) -> TensorBatch:
    """The case's rows without observations."""
    names = "action", "reward", "discount", "weight"
    none = torch.zeros(0)
    return TensorBatch(obs=none, next_obs=none, **{name: case[name][:, None] for name in names})


def weighted_mean(case: dict[str, Tensor], losses: str) -> float:
    """The mean over the case's rows of losses, times their weights."""
    return float((case["weight"] * case[losses]).mean())
