"""Conversion of Gymnasium spaces, observations and actions."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.spaces import (
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    MultiDiscreteSpace,
    convert_space,
)
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.gym_spaces import MaskedDict, raw_observation, raw_space, raw_spaces
from border_cli.errors import BadStep, ConfigError
from border_cli.run.spec import spec_as_json, spec_from_json
from border_cli.system.files import replace_non_finite

FLAG = spaces.Discrete(2)


def make(spaced: Any, observation: Any, action: Any, observations: list[Any]) -> GymEnv:
    spaced.spaces, spaced.observations = (observation, action), observations
    return GymEnvFactory(GymConfig(id="border/Spaced-v1")).make(training=True)


@pytest.mark.parametrize(("dtype", "low"), [(np.float64, -1e300), (np.float16, -np.inf)])
def test_floats_arrive_as_float32(spaced, dtype, low):
    space = spaces.Box(low, 5.0, (2,), dtype)
    ours = convert_space(raw_observation(space, "X-v0"))
    assert isinstance(ours, BoxSpace)
    assert (ours.dtype, ours.low.dtype) == ("float32", np.float32)
    assert (ours.low.tolist(), ours.high.tolist()) == ([-np.inf] * 2, [5.0] * 2)
    env = make(spaced, space, FLAG, [np.array([0.1, 2.0], dtype)])
    obs = env.reset(0)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, np.array([[0.1, 2.0]], dtype).astype(np.float32))


def test_an_environment_may_reuse_its_own_array(spaced):
    buffer = np.zeros(2, np.float32)
    env = make(spaced, spaces.Box(0, 9, (2,), np.float32), FLAG, [buffer, buffer])
    first = env.reset(0)
    buffer[:] = 9
    env.step(np.array([0]))
    assert first.tolist() == [[0, 0]]


def test_named_parts_keep_the_order_of_the_space(spaced):
    space = spaces.Dict(
        OrderedDict(
            z=spaces.Box(0, 1, (2,), np.float64),
            a=spaces.Discrete(4, start=1),
            m=spaces.MultiDiscrete([3, 3]),
        )
    )
    ours = convert_space(raw_observation(space, "X-v0"))
    assert isinstance(ours, DictSpace)
    assert list(ours.spaces) == ["z", "a", "m"]
    observations = [{"a": 4, "m": np.array([2, 1]), "z": np.array([0.0, 0.5])}]
    env = make(spaced, space, FLAG, observations)
    obs = env.reset(0)
    assert [(key, value.tolist()) for key, value in obs.items()] == [
        ("z", [[0.0, 0.5]]),
        ("a", [3]),
        ("m", [[2, 1]]),
    ]
    assert obs["z"].dtype == np.float32


@pytest.mark.parametrize(
    ("space", "ours", "action", "expected"),
    [
        (spaces.Discrete(3, start=1), DiscreteSpace(3), [2], 3),
        (spaces.MultiDiscrete([3, 4], start=[5, 0]), MultiDiscreteSpace((3, 4)), [[2, 3]], [7, 3]),
        (spaces.MultiDiscrete([[2], [2]]), MultiDiscreteSpace((2, 2)), [[0, 1]], [[0], [1]]),
        (spaces.MultiBinary(3), MultiDiscreteSpace((2, 2, 2)), [[0, 1, 1]], [0, 1, 1]),
        (spaces.MultiBinary([2, 1]), MultiDiscreteSpace((2, 2)), [[0, 1]], [[0], [1]]),
    ],
)
def test_integer_actions_reach_the_environment_in_its_own_counting(
    spaced, counting, space, ours, action, expected
):
    assert raw_space(space).leaf == ours
    env = make(spaced, spaces.Discrete(1), space, [0, 0])
    env.reset(0)
    step = env.step(np.array(action))
    [received] = counting.made[0].actions
    assert space.contains(received)
    assert np.asarray(received).tolist() == expected
    assert step.action.tolist() == action


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_real_actions_reach_the_environment_as_a_copy_of_its_own_type(spaced, counting, dtype):
    space = spaces.Box(-1.0, 1.0, (1, 2), dtype)
    ours = raw_space(space).leaf
    assert isinstance(ours, BoxSpace)
    assert (ours.shape, ours.dtype) == ((1, 2), "float32")
    env = make(spaced, spaces.Discrete(1), space, [0, 0])
    env.reset(0)
    step = env.step(np.array([[0.5, -1.0]], np.float32))
    [received] = counting.made[0].actions
    assert (received.dtype, received.tolist()) == (dtype, [[0.5, -1.0]])
    received[:] = 9
    assert step.action.tolist() == [[0.5, -1.0]]


class Mission(spaces.Space[str]):
    """A user-defined space that does not declare whether it can be flattened."""

    def __repr__(self) -> str:
        return "Mission()"


FLATTENING = r"; env\.wrappers=\[FlattenObservation\] turns it into a Box"
WRAPPING = r"; a wrapper of your own can turn it into one: env\.wrappers=\[module:Class\]"


@pytest.mark.parametrize(
    ("space", "named", "remedy"),
    [
        (spaces.Tuple([FLAG]), r"observation space Tuple\(", FLATTENING),
        (spaces.Dict(a=FLAG, b=spaces.Dict(c=FLAG)), r"Dict\(.* of key 'b'", FLATTENING),
        (spaces.Dict(b=Mission()), r"Mission\(\) of key 'b'", WRAPPING),
        (Mission(), r"observation space Mission\(\)", WRAPPING),
        (None, "observation space None", WRAPPING),
    ],
)
def test_an_unsupported_observation_space_is_refused_with_its_name(spaced, space, named, remedy):
    end = (
        " is not supported; supported: Box, Discrete, MultiDiscrete, MultiBinary and Dict of these"
    )
    spaced.spaces = (space, FLAG)
    factory = GymEnvFactory(GymConfig(id="border/Spaced-v1"))
    with pytest.raises(ConfigError, match=rf"^env\.id=border/Spaced-v1: .*{named}.*{end}{remedy}$"):
        assert factory.spec


def test_an_unsupported_action_space_is_refused_with_its_name(spaced):
    end = "is not supported; supported: Box, Discrete, MultiDiscrete, MultiBinary$"
    spaced.spaces = (FLAG, spaces.Dict(a=FLAG))
    with pytest.raises(ConfigError, match=rf"Spaced-v1: action space Dict\(.* {end}"):
        assert GymEnvFactory(GymConfig(id="border/Spaced-v1")).spec


HALF_OPEN = spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64)
NAMED = spaces.Dict(x=spaces.Box(0, 1, (2,), np.float64), room=spaces.Discrete(4, start=1))

MASK = spaces.Box(0, 1, (2,), np.uint8)


def policy_for(observation: Any, action: Any = FLAG) -> LoadedPolicy:
    """Returns a policy whose spec was written to JSON and read again."""
    raw = raw_spaces(observation, action, "X-v0")
    spec = EnvSpec("X-v0", *raw.converted, None, raw=raw)
    read = spec_from_json(
        json.loads(json.dumps(replace_non_finite(spec_as_json(spec)), allow_nan=False))
    )
    assert repr(read) == repr(spec)
    unused: Any = None
    return LoadedPolicy(unused, read)


def test_a_batch_of_observations_and_actions_has_one_axis_more() -> None:
    reads = policy_for(NAMED, spaces.MultiDiscrete([3, 4], start=[5, 0]))
    row, is_batch = reads.rows({"x": [0, 0.5], "room": 4})
    assert not is_batch
    assert row["room"].tolist() == [3]
    rows, is_batch = reads.rows({"x": [[0, 0.5], [1, 1]], "room": [4, 1]})
    assert is_batch
    assert isinstance(rows, dict)
    assert (rows["x"].tolist(), rows["room"].tolist()) == ([[0, 0.5], [1, 1]], [3, 0])
    actions = reads.actions(np.array([[2, 3], [0, 0]]))
    assert (actions.tolist(), actions.dtype) == ([[7, 3], [5, 0]], np.int64)


@pytest.mark.parametrize(
    ("space", "observation", "said"),
    [
        (spaces.Box(-1, 1, (4,), np.float32), np.zeros(3), r"shape is \(3,\), not \(4,\)"),
        (NAMED, {"x": np.zeros((3, 2)), "room": [1, 2]}, r"'room' .* shape is \(2,\), not \(3,\)"),
        (NAMED, [0.0, 1.0], "must be a dict of"),
        (spaces.Box(-np.inf, np.inf, (2,), np.float64), np.zeros(3), r"shape is \(3,\)"),
        (HALF_OPEN, np.zeros(3), r"shape is \(3,\)"),
        (spaces.Discrete(3), [0, 7], r"7 at \[1\] is out of bounds"),
        (spaces.Box(-1, 1, (1,), np.float32), "abc", "expected real numbers, got <U3"),
    ],
)
def test_what_is_neither_one_observation_nor_a_batch_is_refused(
    space: spaces.Space[Any], observation: Any, said: str
) -> None:
    with pytest.raises(BadStep, match=rf"^env\.id=X-v0: .*{said}"):
        policy_for(space).rows(observation)


@pytest.mark.parametrize(
    ("space", "argv", "said"),
    [
        (MaskedDict(observation=NAMED["x"], action_mask=MASK), [[0.0, 1.0]],
         r'needs the action mask: act\(obs, info\["action_mask"\]\)$'),
        (MaskedDict(x=NAMED["x"], y=FLAG, action_mask=MASK), [{"x": [0, 1], "y": 0}],
         r'needs the action mask: act\(obs, info\["action_mask"\]\)$'),
        (NAMED["x"], [[0.0, 1.0], [1, 1]], "takes no action mask: act"),
    ],
)  # fmt: skip
def test_a_policy_says_whether_it_needs_a_mask(
    space: spaces.Space[Any], argv: list[Any], said: str
) -> None:
    with pytest.raises(BadStep, match=rf"^env\.id=X-v0: it .*{said}"):
        policy_for(space).act(*argv)
