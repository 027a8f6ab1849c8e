"""Return values of `step` and `reset`: conversion to rows, and refusal of invalid values."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.raw_values import make_converter
from border_cli.core.spaces import allocate, convert_space
from border_cli.core.types import Array
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.gym_spaces import raw_observation
from border_cli.env.step_results import TERMINATED, as_flag, as_reward
from border_cli.errors import BadStep

REAL = spaces.Box(-1.0, 1.0, (2,), np.float32)
PIXELS = spaces.Box(0, 255, (2, 2), np.uint8)
DIGITS = spaces.Box(np.array([0, -3], np.int8), np.array([9, 3], np.int8), dtype=np.int8)
CHOICE = spaces.Discrete(3, start=-1)
CHOICES = spaces.MultiDiscrete([[2, 3]], start=[[5, 0]])
SWITCHES = spaces.MultiBinary([2, 1])
NAMED = spaces.Dict(place=REAL, room=spaces.Discrete(4))


def write(space: gym.Space[Any], value: Any) -> Array:
    """Returns storage of one row that contains an observation."""
    storage = allocate(convert_space(raw_observation(space)), 1)
    make_converter(raw_observation(space)).write(storage, 0, value)
    return storage


@pytest.mark.parametrize(
    ("space", "value", "row"),
    [
        (REAL, np.array([7.0, -1], np.float64), [7, -1]),  # bounds of floats are not checked here
        (PIXELS, [[0, 255], [1, 2]], [[0, 255], [1, 2]]),
        (DIGITS, np.array([0, 3], np.uint64), [0, 3]),
        (spaces.Box(0, 1, (2,), np.bool_), np.array([0, 1]), [False, True]),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), [2**64 - 1], [2**64 - 1]),
        (CHOICE, np.uint8(1), 2),
        (CHOICES, np.array([[6, 2]], np.uint8), [1, 2]),
        (SWITCHES, np.array([[True], [False]]), [1, 0]),
    ],
)
def test_numbers_of_any_type_that_fit_become_a_row(space: Any, value: Any, row: Any) -> None:
    storage = write(space, value)
    assert not isinstance(storage, dict)
    np.testing.assert_array_equal(storage[0], row)
    read = make_converter(raw_observation(space))(np.stack([value, value]), 2)
    assert not isinstance(read, dict)
    assert (read.dtype, read.shape) == (storage.dtype, (2, *storage.shape[1:]))
    np.testing.assert_array_equal(read, [storage[0], storage[0]])


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (REAL, np.array([0.5], np.float32), r"its shape is \(1,\), not \(2,\)$"),
        (REAL, ["0.1", "0.2"], "expected real numbers, got <U3"),
        (REAL, None, "the observation None does not fit .* expected real numbers, got object"),
        (REAL, [[1.0, 2.0], [3.0]], "expected real numbers, got objects"),
        (PIXELS, np.array([[0, 1], [-1, 2]]), r"-1 at \[1, 0\] is out of bounds$"),
        (PIXELS, np.full((2, 2), 1.0), "expected integers, got float64"),
        (DIGITS, np.array([0, -4], np.int8), r"-4 at \[1\] is out of bounds$"),
        (CHOICE, 1.0, "expected integers, got float64"),
        (CHOICE, 2, r"the observation 2 does not fit Discrete.* 2 is out of bounds$"),
        (SWITCHES, np.array([[0], [2]], np.int8), r"2 at \[1, 0\] is out of bounds$"),
        (CHOICES, np.array([[6, -1]]), r"-1 at \[0, 1\] is out of bounds$"),
        (CHOICES, np.array([[2**63 + 5, 0]], np.uint64), r"9223372036854775813 at \[0, 0\] is out"),
        (NAMED, {"place": np.zeros(2)}, r"must be a dict of \['place', 'room'\], got \['place'\]$"),
        (NAMED, {"place": np.zeros(2), "room": 4}, "^the observation's 'room' 4 does not fit"),
    ],
)  # fmt: skip
def test_values_that_numpy_would_broadcast_wrap_or_parse_are_refused(
    space: Any, value: Any, said: str
) -> None:
    with pytest.raises(BadStep, match=said):
        write(space, value)


def test_one_wrong_observation_among_many_is_named_by_its_place() -> None:
    with pytest.raises(BadStep, match=r": its shape is \(3, 2\), not \(2, 2\)$"):
        make_converter(raw_observation(REAL))(np.zeros((3, 2)), 2)
    with pytest.raises(BadStep, match=r": 9 at \[1, 1\] is out of bounds$"):
        make_converter(raw_observation(DIGITS))(np.array([[0, 0], [0, 9]], np.int8), 2)


@pytest.mark.parametrize("given", [1, True, np.float32(1), np.int8(1), np.array([1.0]), [1]])
def test_a_number_or_an_array_of_one_is_a_reward_and_integers_are_flags(given: Any) -> None:
    assert (as_reward(given), type(as_reward(given))) == (1.0, float)
    if not isinstance(given, np.floating | np.ndarray):
        assert as_flag(TERMINATED, given) is True


@pytest.mark.parametrize("given", [None, "1.5", 1j, np.ones(2), [], {}])
def test_other_values_are_neither_rewards_nor_flags(given: Any) -> None:
    with pytest.raises(BadStep, match=r"^the reward .* is not a number: "):
        as_reward(given)
    with pytest.raises(BadStep, match=r"^terminated .* is not true or false: "):
        as_flag(TERMINATED, given)


class Answers(gym.Env[Any, Any]):
    """Returns the given results from `step` and `reset`, starting at the `at`-th step."""

    def __init__(self, at: int, step: Any = None, reset: Any = None) -> None:
        self.observation_space, self.action_space = REAL, spaces.Discrete(2)
        self.at, self.answer, self.first, self.calls = at, step, reset, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        if self.first is not None and self.calls >= self.at:
            return self.first
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        del action
        self.calls += 1
        fine = np.zeros(2, np.float32), 1.0, self.calls % 5 == 0, False, {}
        if self.answer is None or self.calls < self.at:
            return fine
        return self.answer(*fine) if callable(self.answer) else self.answer


gym.register("border/Answers-v1", entry_point=Answers)


def make(num_envs: int = 1, **kwargs: Any) -> GymEnv:
    config = GymConfig(id="border/Answers-v1", num_envs=num_envs, kwargs=kwargs)
    env = GymEnvFactory(config).make(training=True)
    assert isinstance(env, GymEnv)
    env.reset(0)
    return env


def replace(index: int, value: Any) -> Any:
    return lambda *five: (*five[:index], value, *five[index + 1 :])


def step_all(env: GymEnv, times: int) -> None:
    for _ in range(times):
        env.step(np.zeros(env.num_envs, np.int64))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (replace(0, np.zeros(1)), r"the observation .* its shape is \(1,\), not \(2,\)$"),
        (replace(1, None), "the reward None is not a number"),
        (replace(2, [0, 1]), r"terminated \[0, 1\] is not true or false"),
        (replace(3, "no"), "truncated 'no' is not true or false"),
        (lambda *five: five[:4], "step must return .*, got 4 values, as before Gym 0.26; Shimmy"),
        (7, "step must return observation, reward, terminated, truncated and info, got 7$"),
    ],
)
def test_a_later_step_is_refused_with_its_environment(step: Any, said: str) -> None:
    alone = make(at=3, step=step)
    step_all(alone, 2)
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1: {said}"):
        step_all(alone, 1)
    env = make(3, at=3, step=step)
    env.envs[0].unwrapped.at = 9  # the first environment still returns valid values
    step_all(env, 2)
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1, environment 2 of 3: {said}"):
        step_all(env, 1)


@pytest.mark.parametrize(
    ("reset", "said"),
    [
        ((np.zeros(3), {}), r"the observation .* its shape is \(3,\), not \(2,\)$"),
        (7, "reset must return observation and info, got 7$"),
    ],
)
def test_a_reset_is_refused_whether_it_is_the_first_or_not(reset: Any, said: str) -> None:
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1, at reset: {said}"):
        make(at=0, reset=reset)
    env = make(at=4, reset=reset)
    step_all(env, 4)
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1, at reset: {said}"):
        step_all(env, 1)


def test_rewards_and_flags_in_arrays_of_one_are_numbers_of_an_episode() -> None:
    env = make(
        at=0,
        step=lambda o, r, te, tr, i: (o, np.array([r]), np.array([te]), np.array([tr]), i),
    )
    step_all(env, 4)
    step = env.step(np.zeros(1, np.int64))
    assert (step.reward.tolist(), step.terminated.tolist()) == ([1.0], [True])
    assert (step.truncated.tolist(), step.episodes[0].score) == ([False], 5.0)
    assert type(step.episodes[0].score) is float


@pytest.mark.parametrize("env_id", ["Taxi", "FrozenLake", "LunarLander"])
def test_environments_of_gymnasium_pass_the_checks(env_id: str) -> None:
    env = GymEnvFactory(GymConfig(id=env_id)).make(training=True)
    env.reset(0)
    for action in np.random.default_rng(0).integers(0, 2, 300):
        env.step(action[None])
    env.close()
