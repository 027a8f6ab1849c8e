"""Choices of networks, apart from all other settings: a policy in numpy imports no more of them."""

from __future__ import annotations

from enum import StrEnum


class Matmul(StrEnum):
    """Whose matrix products dense layers take on a CPU."""

    auto = "auto"
    mkl = "mkl"
    onednn = "onednn"


class MatmulPrecision(StrEnum):
    """How precise float32 matrix products are."""

    highest = "highest"
    high = "high"
    medium = "medium"


class Activation(StrEnum):
    """The function between two dense layers."""

    relu = "relu"
    tanh = "tanh"
    elu = "elu"
    silu = "silu"
