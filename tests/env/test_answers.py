"""What environments answer: what becomes of it, and what is refused before it is stored."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.errors import BadStep
from border_cli.core.spaces import allocate
from border_cli.core.types import Array, leaves
from border_cli.env.answers import (
    as_flag,
    as_flags,
    as_reward,
    as_rewards,
    environment_of,
    observation_reader,
    observation_writer,
)
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.gym_spaces import observation_space

REAL = spaces.Box(-1.0, 1.0, (2,), np.float32)
PIXELS = spaces.Box(0, 255, (2, 2), np.uint8)
DIGITS = spaces.Box(np.array([0, -3], np.int8), np.array([9, 3], np.int8), dtype=np.int8)
CHOICE = spaces.Discrete(3, start=-1)
CHOICES = spaces.MultiDiscrete([[2, 3]], start=[[5, 0]])
NAMED = spaces.Dict(place=REAL, room=spaces.Discrete(4))
ACT = spaces.Discrete(2)


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no name")


def written(space: gym.Space[Any], value: Any) -> Array:
    """One observation as its row."""
    storage = allocate(observation_space(space, "X-v0"), 1)
    for leaf in leaves(storage):
        leaf[:] = 99
    observation_writer(space)(storage, 0, value)
    return storage


ACCEPTED = [
    (REAL, np.array([0.5, -1], np.float32), [0.5, -1]),
    (REAL, np.array([0.5, -1], np.float64), [0.5, -1]),
    (REAL, np.array([0.5, -1], np.float16), [0.5, -1]),
    (REAL, np.array([1, -1]), [1, -1]),
    (REAL, np.array([True, False]), [1, 0]),
    (REAL, [0.5, -1], [0.5, -1]),
    (REAL, (1, np.float32(0.5)), [1, 0.5]),
    (REAL, np.array([7.0, -9.0]), [7, -9]),  # its bounds are looked at elsewhere
    (spaces.Box(0, 1, ()), 0.5, 0.5),
    (spaces.Box(0, 9, (), np.int64), np.int8(7), 7),
    (PIXELS, np.array([[0, 255], [1, 2]]), [[0, 255], [1, 2]]),
    (PIXELS, [[0, 255], [1, 2]], [[0, 255], [1, 2]]),
    (DIGITS, np.array([9, -3], np.int8), [9, -3]),
    (DIGITS, np.array([0, 3], np.uint64), [0, 3]),
    (spaces.Box(0, 1, (2,), np.bool_), np.array([0, 1]), [False, True]),
    (spaces.Box(0, 2**64 - 1, (1,), np.uint64), [2**64 - 1], [2**64 - 1]),
    (CHOICE, 1, 2),
    (CHOICE, np.int32(-1), 0),
    (CHOICE, True, 2),
    (CHOICE, np.bool_(False), 1),
    (CHOICE, np.array(1, np.uint8), 2),
    (CHOICE, np.array([[1]]), 2),
    (CHOICE, [0], 1),
    (CHOICES, np.array([[6, 2]]), [1, 2]),
    (CHOICES, np.array([[5, 0]], np.uint8), [0, 0]),
    (CHOICES, [[5, 1]], [0, 1]),
]


@pytest.mark.parametrize(("space", "value", "row"), ACCEPTED)
def test_numbers_of_any_type_that_fit_become_a_row(space: Any, value: Any, row: Any) -> None:
    storage = written(space, value)
    assert not isinstance(storage, dict)
    np.testing.assert_array_equal(storage[0], row)
    read = observation_reader(space, environment_of)(np.stack([value, value]), 2)
    assert not isinstance(read, dict)
    assert (read.dtype, read.shape) == (storage.dtype, (2, *storage.shape[1:]))
    np.testing.assert_array_equal(read, [storage[0], storage[0]])


REFUSED = [
    (REAL, np.array([0.5], np.float32), r"its shape is \(1,\), not \(2,\)$"),
    (REAL, 0.5, r"^the observation 0.5 does not fit Box\(-1.0, 1.0, \(2,\), float32\): its shape"),
    (REAL, np.zeros((1, 2), np.float32), r"its shape is \(1, 2\), not \(2,\)"),
    (REAL, ["0.1", "0.2"], "expected real numbers, got <U3"),
    (REAL, None, "the observation None does not fit .* expected real numbers, got object"),
    (REAL, [None, 0.5], "expected real numbers, got object"),
    (REAL, np.array([1j, 0]), "expected real numbers, got complex128"),
    (REAL, [[1.0, 2.0], [3.0]], "expected real numbers, got objects"),
    (REAL, {"place": 1}, "expected real numbers, got object"),
    (REAL, Unprintable(), "the observation <Unprintable instance at 0x.*> does not fit"),
    (PIXELS, np.full((2, 2), 300), r"300 at \[0, 0\] is not within 0 to 255$"),
    (PIXELS, np.array([[0, 1], [-1, 2]]), r"-1 at \[1, 0\] is not within 0 to 255$"),
    (PIXELS, np.full((2, 2), 1.0), "expected integers, got float64"),
    (PIXELS, np.zeros(2, np.uint8), r"its shape is \(2,\), not \(2, 2\)"),
    (DIGITS, np.array([10, 0], np.int8), r"10 at \[0\] is not within 0 to 9$"),
    (DIGITS, np.array([0, -4], np.int8), r"-4 at \[1\] is not within -3 to 3$"),
    (DIGITS, np.array([-128, 127], np.int8), r"-128 at \[0\] is not within 0 to 9$"),
    (DIGITS, np.array([0, 256 + 1]), r"257 at \[1\] is not within -3 to 3$"),
    (spaces.Box(0, 9, (), np.int64), 10, "10 is not within 0 to 9$"),
    (spaces.Box(0, 1, (2,), np.bool_), [0, 2], r"2 at \[1\] is not within"),
    (CHOICE, 2.7, "the observation 2.7 does not fit Discrete.* expected integers, got float64"),
    (CHOICE, 1.0, "expected integers, got float64"),
    (CHOICE, "1", "expected integers, got <U1"),
    (CHOICE, None, "expected integers, got object"),
    (CHOICE, 2, "the observation 2 does not fit Discrete.* it is not within -1 to 1$"),
    (CHOICE, np.int64(-2), "it is not within -1 to 1$"),
    (CHOICE, 10**30, "it is not within -1 to 1$"),
    (CHOICE, np.array([0, 1]), r"its shape is \(2,\), not \(\)"),
    (CHOICES, np.array([[6, -1]]), r"-1 at \[0, 1\] is not within 0 to 2$"),
    (CHOICES, np.array([[4, 0]]), r"4 at \[0, 0\] is not within 5 to 6$"),
    (CHOICES, np.array([6, 0]), r"its shape is \(2,\), not \(1, 2\)"),
    (CHOICES, np.array([[6.0, 0.0]]), "expected integers, got float64"),
    (CHOICES, np.array([[2**63 + 5, 0]], np.uint64), r"9223372036854775813 at \[0, 0\] is not"),
]


@pytest.mark.parametrize(("space", "value", "said"), REFUSED)
def test_what_numpy_would_stretch_wrap_round_or_parse_is_refused(
    space: Any, value: Any, said: str
) -> None:
    with pytest.raises(BadStep, match=said):
        written(space, value)


@pytest.mark.parametrize(
    ("space", "values", "said"),
    [
        (REAL, np.zeros((3, 2)), r"^2 observations .* its shape is \(3, 2\), not \(2, 2\)$"),
        (REAL, np.zeros(2), r"its shape is \(2,\), not \(2, 2\)$"),
        (REAL, np.array([["a", "b"]] * 2), "expected real numbers, got <U1"),
        (PIXELS, np.zeros((2, 2, 2)), "^2 observations .* expected integers, got float64"),
        (DIGITS, np.array([[0, 0], [0, 9]], np.int8), r"^environment 2 of 2: .* 9 at \[1\]"),
        (CHOICE, np.array([0, 2]), r"^environment 2 of 2: .* 2 is not within -1"),
        (CHOICE, np.array([0.0, 1.0]), "expected integers, got float64"),
        (CHOICES, np.array([[[6, 3]], [[6, 0]]]), r"^environment 1 of 2: .* 3 at \[0, 1\] is not"),
    ],
)  # fmt: skip
def test_one_wrong_observation_among_many_is_named_with_its_environment(
    space: Any, values: Any, said: str
) -> None:
    with pytest.raises(BadStep, match=said):
        observation_reader(space, environment_of)(values, 2)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"place": np.zeros(2)},
            r"^the observation lacks 'room'; its keys are 'place', 'room'$",
        ),
        ({"place": np.zeros(2), "room": 1, "key": 2}, "has unexpected 'key'; its keys are"),
        (
            np.zeros(2),
            r"the observation array\(\[0., 0.\]\) is not a dict with keys 'place', 'room'",
        ),
        ({"place": np.zeros(3), "room": 1}, r"^key 'place': the observation .* its shape is"),
        ({"place": np.zeros(2), "room": 4}, "^key 'room': the observation 4 does not fit"),
    ],
)
def test_keys_of_a_dict_are_named(value: Any, said: str) -> None:
    with pytest.raises(BadStep, match=said):
        written(NAMED, value)


def test_any_mapping_with_the_keys_of_the_space_is_a_dict() -> None:
    row = written(NAMED, MappingProxyType({"room": 3, "place": [0.5, 1]}))
    assert isinstance(row, dict)
    assert (row["room"].tolist(), row["place"].tolist()) == ([3], [[0.5, 1]])


def test_what_is_shown_of_a_value_is_one_short_line() -> None:
    with pytest.raises(BadStep, match="does not fit") as raised:
        written(spaces.Box(-1, 1, (84, 84, 3)), np.full((84, 84), 0.123456789))
    assert len(str(raised.value)) < 250
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "given", [1.5, np.float32(1.5), np.float64(1.5), np.array(1.5), np.array([1.5]), [1.5]]
)
def test_a_number_or_an_array_of_one_is_a_reward(given: Any) -> None:
    assert as_reward(given) == 1.5
    assert type(as_reward(given)) is float


@pytest.mark.parametrize(("given", "reward"), [(3, 3.0), (True, 1.0), (np.int8(-3), -3.0)])
def test_integers_and_truth_values_are_rewards(given: Any, reward: float) -> None:
    assert as_reward(given) == reward


@pytest.mark.parametrize(
    "given", [None, "1.5", 1j, np.ones(2), [], {}, [None], Fraction(1, 2), np.complex64(1)]
)
def test_anything_else_is_not_a_reward(given: Any) -> None:
    with pytest.raises(BadStep, match=r"^the reward .* is not a number$"):
        as_reward(given)


def test_an_integer_that_no_float_holds_is_not_a_reward() -> None:
    with pytest.raises(BadStep, match=r"^the reward 1000.* is too large for a float$"):
        as_reward(10**400)


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        (True, True), (np.False_, False), (np.True_, True), (0, False), (1, True), (1.0, True),
        (np.array([True]), True), (np.array(0), False), ([1], True), (np.int8(1), True),
    ],
)  # fmt: skip
def test_a_truth_value_zero_one_or_an_array_of_one_is_a_flag(given: Any, flag: bool) -> None:
    assert as_flag("terminated", given) is flag


@pytest.mark.parametrize("given", [None, 2, -1, 0.5, np.nan, "", "False", np.zeros(2), [], 1j])
def test_anything_else_is_not_a_flag(given: Any) -> None:
    with pytest.raises(BadStep, match=r"^truncated must be true or false, got "):
        as_flag("truncated", given)


@pytest.mark.parametrize("given", [None, 1.0, np.ones(3), np.ones((2, 1)), ["1", "2"], [None, 1]])
def test_rewards_are_one_number_for_each_environment(given: Any) -> None:
    assert as_rewards([1, 2], 2).tolist() == [1, 2]
    with pytest.raises(BadStep, match=r"^the rewards must be 2 numbers, got "):
        as_rewards(given, 2)


@pytest.mark.parametrize("given", [None, True, np.zeros(3), [0, 2], [0.5, 0], ["", "a"]])
def test_flags_are_one_for_each_environment(given: Any) -> None:
    assert as_flags("truncated", [0, 1], 2).tolist() == [False, True]
    with pytest.raises(BadStep, match=r"^terminated must be 2 times true or false, got "):
        as_flags("terminated", given, 2)


class Answers(gym.Env[Any, Any]):
    """Its step and reset answer what they are told, from the given call on."""

    def __init__(self, at: int, step: Any = None, reset: Any = None) -> None:
        self.observation_space, self.action_space = REAL, ACT
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
gym.register("border/AnswersLimited-v1", entry_point=Answers, max_episode_steps=100)


def answering(num_envs: int = 1, name: str = "Answers", **kwargs: Any) -> GymEnv:
    config = GymConfig(id=f"border/{name}-v1", num_envs=num_envs, kwargs=kwargs)
    env = GymEnvFactory(config).make(training=True)
    assert isinstance(env, GymEnv)
    env.reset(0)
    return env


def put(place: int, value: Any, answer: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*answer[:place], value, *answer[place + 1 :])


def act(env: GymEnv, times: int) -> None:
    for _ in range(times):
        env.step(np.zeros(env.num_envs, np.int64))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            lambda *five: put(0, np.zeros(1), five),
            r"the observation .* its shape is \(1,\), not \(2,\)$",
        ),
        (lambda *five: put(1, None, five), "the reward None is not a number$"),
        (lambda *five: put(2, [0, 1], five), r"terminated must be true or false, got \[0, 1\]"),
        (lambda *five: put(3, "no", five), "truncated must be true or false, got 'no'$"),
        (lambda *five: five[:4], r"step must return observation, reward, .*got 4\)$"),
        (lambda *five: (*five, 6), "step must return observation, reward, terminated, truncated"),
        (7, "step must return observation, reward, terminated, truncated and info: "),
    ],
)
@pytest.mark.parametrize("name", ["Answers", "AnswersLimited"])  # without a wrapper, with one
def test_a_later_step_is_refused_with_its_environment(name: str, step: Any, said: str) -> None:
    alone = answering(at=3, step=step, name=name)
    act(alone, 2)
    with pytest.raises(BadStep, match=rf"^env\.id=border/{name}-v1: {said}"):
        act(alone, 1)
    env = answering(3, at=3, step=step, name=name)
    env._envs[0].unwrapped.at = 9  # of which nothing is wrong yet
    act(env, 2)
    with pytest.raises(BadStep, match=rf"^env\.id=border/{name}-v1, environment 2 of 3: {said}"):
        act(env, 1)


@pytest.mark.parametrize(
    ("reset", "said"),
    [
        ((np.zeros(3), {}), r", at reset: the observation .* its shape is \(3,\), not \(2,\)$"),
        ((["a", "b"], {}), ", at reset: the observation .* expected real numbers, got <U1"),
        (np.zeros(3), r": reset must return observation and info: too many values to unpack"),
        (None, r": reset must return observation and info: cannot unpack non-iterable NoneType"),
    ],
)
def test_a_reset_is_refused_whether_it_is_the_first_or_not(reset: Any, said: str) -> None:
    if reset is None:
        reset = 7
        said = said.replace("NoneType", "int")
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1{said}"):
        answering(at=0, reset=reset)
    env = answering(at=4, reset=reset)
    act(env, 4)
    with pytest.raises(BadStep, match=rf"^env\.id=border/Answers-v1{said}"):
        act(env, 1)


def test_what_an_environment_itself_cannot_unpack_is_its_own_failure() -> None:
    def step(*five: Any) -> Any:
        one, two = five
        return one, two

    env = answering(at=2, step=step)
    act(env, 1)
    with pytest.raises(ValueError, match="too many values to unpack"):
        act(env, 1)


def test_rewards_and_flags_in_arrays_of_one_are_numbers_of_an_episode() -> None:
    env = answering(
        at=0,
        step=lambda o, r, te, tr, i: (o, np.array([r]), np.array([te]), np.array([tr]), i),
    )
    act(env, 4)
    step = env.step(np.zeros(1, np.int64))
    assert (step.reward.tolist(), step.terminated.tolist()) == ([1.0], [True])
    assert (step.truncated.tolist(), step.episodes[0].score) == ([False], 5.0)
    assert type(step.episodes[0].score) is float


@pytest.mark.parametrize(
    "env_id", ["Taxi", "FrozenLake", "CliffWalking", "Blackjack-v1", "LunarLander", "Acrobot-v1"]
)
def test_environments_of_gymnasium_give_what_they_say(env_id: str) -> None:
    config = GymConfig(id=env_id)
    if env_id == "Blackjack-v1":  # a tuple, which flat is several integers
        config = GymConfig(id=env_id, wrappers=["FlattenObservation"])
    env = GymEnvFactory(config).make(training=True)
    env.reset(0)
    for action in np.random.default_rng(0).integers(0, 2, 300):
        env.step(action[None])
    env.close()
