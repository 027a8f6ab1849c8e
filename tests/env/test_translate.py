"""Conversion of recorded observations and actions to rows and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.raw_values import action_reader
from border_cli.core.types import leaves
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import raw_space
from border_cli.env.translate import (
    action_rows,
    observation_rows,
    raw_parts,
    recorded_rows,
    spaces_of,
)
from border_cli.errors import BadStep, ConfigError

SPACES: dict[str, spaces.Space[Any]] = {
    "float64": spaces.Box(-1, 1, (2, 3), np.float64),
    "choice": spaces.Discrete(5),
    "choices": spaces.MultiDiscrete([3, 4], start=[1, -1]),
    "switches": spaces.MultiBinary([2, 3]),
    "named": spaces.Dict({"b": spaces.Discrete(3, start=1), "a": spaces.Box(0, 1, (2,))}),
}


def samples(space: spaces.Space[Any], count: int = 5) -> list[Any]:
    space.seed(0)
    return [space.sample() for _ in range(count)]


def stack(values: list[Any]) -> Any:
    """Stacks values as a data set stores them."""
    if isinstance(values[0], dict):
        return {key: np.stack([value[key] for value in values]) for key in values[0]}
    return np.stack(values)


@pytest.mark.parametrize("name", SPACES)
def test_what_is_recorded_comes_back(name: str) -> None:
    space = SPACES[name]
    rows = observation_rows(space, stack(samples(space)))
    back = recorded_rows(space, rows)
    second_rows = observation_rows(space, back)
    for mine, theirs in zip(leaves(second_rows), leaves(rows), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if not isinstance(back, dict):
        assert back.dtype == space.dtype
        assert all(value in space for value in back)


@pytest.mark.parametrize("name", [space_name for space_name in SPACES if space_name != "named"])
def test_recorded_actions_are_those_that_the_environment_got(name: str) -> None:
    space = SPACES[name]
    actions = action_rows(space, stack(samples(space)))
    np.testing.assert_array_equal(
        recorded_rows(space, actions), np.stack(action_reader(raw_space(space))(actions))
    )


@pytest.mark.parametrize("limit", [0.1, 1 / 3, 1e-9])
def test_an_action_at_a_bound_of_64_bits_stays_within_it(limit: float) -> None:
    space = spaces.Box(-limit, limit, (2,), np.float64)
    rows = np.array([[limit, -limit], [0, limit / 3]], np.float32)
    for action in action_reader(raw_space(space))(rows):
        assert action.dtype == np.float64
        assert space.contains(action)


def test_a_space_that_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^dataset=a-v0: observation space Text.* not supported"):
        spaces_of(spaces.Text(3), spaces.Discrete(2), "dataset", "a-v0")


def test_the_parts_of_an_environment_are_gymnasiums_own() -> None:
    observation, action, spec = raw_parts(GymConfig(id="CartPole-v1", max_episode_steps=9))
    assert (observation.shape, action) == ((4,), spaces.Discrete(2))
    assert (spec.id, spec.max_episode_steps) == ("CartPole-v1", 9)


def test_what_is_refused_of_an_environment_is_refused_of_a_recording() -> None:
    with pytest.raises(BadStep, match=r"the observation .* 5 at \[2\] is out of bounds$"):
        observation_rows(SPACES["choice"], np.array([0, 4, 5]))
    with pytest.raises(BadStep, match=r"the action .* expected integers, got float64"):
        action_rows(SPACES["choice"], np.array([0.0, 2.7]))
