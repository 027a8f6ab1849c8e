"""Observation spaces with values of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space


def box(shape: tuple[int, ...], dtype: str = "float32") -> BoxSpace:
    high = 255 if dtype == "uint8" else 1
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.full(shape, high))


SPACES: dict[str, Space] = {
    "vector": box((5,)),
    "scalar": box(()),
    "grid": box((2, 3)),
    "pixels": box((4, 4, 2), "uint8"),
    "discrete": DiscreteSpace(7),
    "multi_discrete": MultiDiscreteSpace((2, 1, 3)),
    "dict": DictSpace(
        {
            "values": box((2,)),
            "a.b": DiscreteSpace(3),
            "screen": box((2, 2), "uint8"),
            "keys": MultiDiscreteSpace((2, 2)),
        }
    ),
}


def draw(space: Space, rows: int, rng: np.random.Generator) -> Any:
    match space:
        case BoxSpace(shape=shape, dtype="uint8"):
            return rng.integers(256, size=(rows, *shape), dtype=np.uint8)
        case BoxSpace(shape=shape):
            return rng.standard_normal((rows, *shape)).astype(np.float32)
        case DiscreteSpace(n=n):
            return rng.integers(n, size=rows)
        case MultiDiscreteSpace(nvec=nvec):
            return rng.integers(nvec, size=(rows, len(nvec)))
        case DictSpace(spaces=spaces):
            return {key: draw(part, rows, rng) for key, part in spaces.items()}


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]


@pytest.fixture(params=[1, 20])
def observations(request: pytest.FixtureRequest, space: Space) -> Any:
    return draw(space, request.param, np.random.default_rng(3))
