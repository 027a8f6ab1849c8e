"""Fixtures: observation spaces and random observations from them."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.core.spaces import DictSpace, DiscreteSpace, MultiDiscreteSpace, Space
from tests.support.spaces import drawn, numbers, pixels

SPACES: dict[str, Space] = {
    "vector": numbers(5),
    "scalar": numbers(),
    "grid": numbers(2, 3),
    "pixels": pixels(4, 4, 2),
    "discrete": DiscreteSpace(7),
    "multi_discrete": MultiDiscreteSpace((2, 1, 3)),
    "dict": DictSpace(
        {
            "values": numbers(2),
            "a.b": DiscreteSpace(3),
            "screen": pixels(2, 2),
            "keys": MultiDiscreteSpace((2, 2)),
        }
    ),
}


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]


@pytest.fixture(params=[1, 20])
def observations(request: pytest.FixtureRequest, space: Space) -> Any:
    return drawn(space, request.param)
