"""Parametrisations of tests over numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

LIBRARIES = {"numpy": np.asarray, "torch": torch.from_numpy}

# `backend` is a value of agent.backend; `wrap` makes a formula's inputs from numpy arrays.
both_backends = pytest.mark.parametrize("backend", LIBRARIES)
both_libraries = pytest.mark.parametrize("wrap", LIBRARIES.values(), ids=LIBRARIES)
