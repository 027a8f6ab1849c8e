"""Enums of network settings, separate from other settings so that NumPy policies import little."""

from __future__ import annotations

from enum import StrEnum


class BackendName(StrEnum):
    """Library that computes updates."""

    auto = "auto"
    numpy = "numpy"
    torch = "torch"


class Matmul(StrEnum):
    """Matmul backend of dense layers on a CPU."""

    auto = "auto"
    mkl = "mkl"
    onednn = "onednn"


class MatmulPrecision(StrEnum):
    """Precision of float32 matrix products."""

    highest = "highest"
    high = "high"
    medium = "medium"


class Activation(StrEnum):
    """Activation function between dense layers."""

    relu = "relu"
    tanh = "tanh"
    elu = "elu"
    silu = "silu"
