"""Specs of environments, and rows whose values all encode the row number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec, MultiDiscreteSpace
from border_cli.core.types import Transitions
from tests.support.spaces import numbered, numbers, pixels

MakeRows = Callable[..., Transitions]


@pytest.fixture
def spec() -> EnvSpec:
    return EnvSpec(id="plain", observation=numbers(4), action=DiscreteSpace(2), max_episode_steps=9)


@pytest.fixture
def image_spec(spec: EnvSpec) -> EnvSpec:
    return replace(spec, id="image", observation=pixels(40, 40, 1), action=numbers(3))


@pytest.fixture
def dict_spec(spec: EnvSpec) -> EnvSpec:
    """The first part has the narrowest type, so that sorting by alignment would be noticed."""
    parts = {
        "pixels": pixels(2, 2),
        "level": DiscreteSpace(50),
        "speed.x": numbers(1),
        "screen": pixels(30, 40),
    }
    return replace(
        spec, id="dict", observation=DictSpace(parts), action=MultiDiscreteSpace((3, 200))
    )


@pytest.fixture
def make_rows() -> MakeRows:
    """Makes rows first … last-1: obs n, action n, reward 2n, discount n/1000, next obs n+1."""

    def make(spec: EnvSpec, first: int, last: int) -> Transitions:
        count = np.arange(first, last)
        return Transitions(
            obs=numbered(spec.observation, count),
            action=numbered(spec.action, count),
            reward=(2 * count).astype(np.float32),
            discount=(count / 1000).astype(np.float32),
            next_obs=numbered(spec.observation, count + 1),
        )

    return make
