"""Environments in words, and rows that tell by every value which row they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec, MultiDiscreteSpace
from border_cli.core.types import Transitions

MakeRows = Callable[..., Transitions]


def box(shape: tuple[int, ...], dtype: str = "float32") -> BoxSpace:
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.ones(shape))


@pytest.fixture
def spec() -> EnvSpec:
    return EnvSpec(id="plain", observation=box((4,)), action=DiscreteSpace(2), max_episode_steps=9)


@pytest.fixture
def image_spec(spec: EnvSpec) -> EnvSpec:
    return replace(spec, id="image", observation=box((40, 40, 1), "uint8"), action=box((3,)))


@pytest.fixture
def dict_spec(spec: EnvSpec) -> EnvSpec:
    """Its first part has the narrowest type, so an order by alignment would show."""
    parts = {
        "pixels": box((2, 2), "uint8"),
        "level": DiscreteSpace(50),
        "speed.x": box((1,)),
        "screen": box((30, 40), "uint8"),
    }
    return replace(
        spec, id="dict", observation=DictSpace(parts), action=MultiDiscreteSpace((3, 200))
    )


def filled(shape: tuple[int, ...], dtype: str, numbers: np.ndarray) -> np.ndarray:
    """An array whose row i is numbers[i] everywhere."""
    column = numbers.reshape(-1, *(1 for _ in shape))
    return np.broadcast_to(column, (len(numbers), *shape)).astype(dtype)


@pytest.fixture
def make_rows() -> MakeRows:
    """Rows number first … last-1: obs n, action n, reward 2n, discount n/1000, next obs n+1."""

    def leaf(space: Any, numbers: np.ndarray) -> np.ndarray:
        match space:
            case BoxSpace(shape=shape, dtype=dtype):
                return filled(shape, dtype, numbers)
            case MultiDiscreteSpace(nvec=nvec):
                return filled((len(nvec),), "int64", numbers)
        return numbers.astype(np.int64)

    def array(space: Any, numbers: np.ndarray) -> Any:
        if isinstance(space, DictSpace):
            return {key: leaf(part, numbers) for key, part in space.spaces.items()}
        return leaf(space, numbers)

    def make(spec: EnvSpec, first: int, last: int) -> Transitions:
        numbers = np.arange(first, last)
        return Transitions(
            obs=array(spec.observation, numbers),
            action=leaf(spec.action, numbers),
            reward=(2 * numbers).astype(np.float32),
            discount=(numbers / 1000).astype(np.float32),
            next_obs=array(spec.observation, numbers + 1),
        )

    return make
