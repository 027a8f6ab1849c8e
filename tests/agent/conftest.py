"""Fixtures: a small environment spec and batches of random transitions for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from tests.support.continuous_env import batch
from tests.support.spaces import reals

MakeBatch = Callable[..., Batch]


@pytest.fixture
def spec() -> EnvSpec:
    """An environment with observations of three numbers and two actions."""
    return EnvSpec(id="Tiny-v0", observation=reals(3), action=DiscreteSpace(2), max_episode_steps=9)


@pytest.fixture
def make_batch() -> MakeBatch:
    return partial(batch, actions=2)
