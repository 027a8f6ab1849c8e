"""Observations without parts that no network can read, and vector rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.spaces import DictSpace, MultiDiscreteSpace
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.errors import BadStep, ConfigError
from border_cli.run.spec import spec_as_json, spec_from_json

FLAG = spaces.Discrete(2)
GRID = spaces.Dict(
    image=spaces.Box(0, 255, (3,), np.uint8),
    mission=spaces.Text(9),
    graph=spaces.Graph(spaces.Discrete(3), None),
    direction=spaces.Discrete(4),
)
OBSERVED = {"image": np.zeros(3, np.uint8), "mission": "go", "graph": None, "direction": 2}


def factory(**settings: Any) -> GymEnvFactory:
    return GymEnvFactory(GymConfig(id="border/Spaced-v1", **settings))


def keys(made: GymEnvFactory) -> list[str]:
    space = made.spec.observation
    assert isinstance(space, DictSpace)
    return list(space.spaces)


def test_parts_that_no_network_can_read_are_left_out(spaced):
    spaced.spaces, spaced.observations = (GRID, FLAG), [OBSERVED, OBSERVED]
    assert keys(factory()) == ["direction", "image"]
    assert set(factory().spec.left_out) == {"mission", "graph"}
    env = factory().make(training=True)
    obs = env.reset(0)
    assert obs["direction"].tolist() == [2]
    assert list(env.step(np.array([0])).next_obs) == list(obs)


def test_parts_are_left_out_on_request(spaced):
    spaced.spaces = (GRID, FLAG)
    assert keys(factory(ignore=["image"])) == ["direction"]
    with pytest.raises(ConfigError, match=r"env\.ignore: unknown part .* 'imag'.*image"):
        assert factory(ignore=["imag"]).spec
    with pytest.raises(ConfigError, match=r"env\.ignore=\['image', 'direction'\] leaves nothing"):
        assert factory(ignore=["image", "direction"]).spec


def test_a_saved_policy_takes_whole_observations(spaced):
    spaced.spaces = (GRID, FLAG)
    spec = spec_from_json(spec_as_json(factory().spec))
    assert spec.left_out == factory().spec.left_out

    def even(rows: Any, *, explore: bool) -> Any:
        assert not explore
        return rows["direction"] % 2

    policy = LoadedPolicy(even, spec)
    assert policy.act(OBSERVED) == 0
    with pytest.raises(BadStep, match="must be a dict of"):
        policy.act(OBSERVED | {"other": 1})


def test_a_vector_reward_is_summed_by_its_weights(counting, monkeypatch):
    step = counting.step

    def vector_step(self: Any, action: Any) -> Any:
        observation, reward, *rest = step(self, action)
        return observation, np.array([reward, 10.0]), *rest

    monkeypatch.setattr(counting, "step", vector_step)
    made = GymEnvFactory(GymConfig(id="border/Counting-v1", reward_weights=[2.0, 0.5]))
    env = made.make(training=True)
    env.reset(0)
    assert [env.step(np.array([0])).reward.tolist() for _ in range(2)] == [[7.0], [9.0]]
    other = GymEnvFactory(GymConfig(id="border/Counting-v1", reward_weights=[1.0]))
    env = other.make(training=True)
    env.reset(0)
    with pytest.raises(BadStep, match=r"must be 1 numbers, one for each of env.reward_weights"):
        env.step(np.array([0]))


def test_a_declared_vector_reward_needs_weights(counting, monkeypatch):
    monkeypatch.setattr(counting, "reward_space", spaces.Box(-1, 1, (2,)), raising=False)
    with pytest.raises(ConfigError, match=r"env\.reward_weights must have 2 numbers"):
        assert GymEnvFactory(GymConfig(id="border/Counting-v1")).spec


def test_a_tuple_of_discrete_actions_is_one_multi_discrete_action(spaced):
    spaced.spaces = (FLAG, spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2, start=5)]))
    spaced.observations = [0, 0]
    made = factory()
    assert made.spec.action == MultiDiscreteSpace((3, 2))
    taken: list[Any] = []
    env = made.make(training=True)
    step = env.envs[0].unwrapped.step
    env.envs[0].unwrapped.step = lambda action: (taken.append(action), step(action))[1]
    env.reset(0)
    env.step(np.array([[2, 1]]))
    assert taken == [(2, 6)]


def test_a_tuple_of_other_actions_is_refused(spaced):
    spaced.spaces = (FLAG, spaces.Tuple([FLAG, spaces.Box(0, 1)]))
    with pytest.raises(ConfigError, match=r"action space Tuple.* is not supported"):
        assert factory().spec
