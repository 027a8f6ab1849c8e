"""Repeated actions, and smaller, grey and stacked images."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from border_cli.core.spaces import BoxSpace, DictSpace
from border_cli.env.config import GymConfig
from border_cli.env.frames import ImageChange
from border_cli.env.gym import GymEnvFactory
from border_cli.errors import BadStep, ConfigError

LENGTH = 7  # env steps of an episode


class Screen(gym.Env[Any, Any]):
    """An image whose pixels are the number of the step, with channels if `channels` is not 0; with
    `speed` as a part of a Dict. The reward is the number of the step."""

    action_space = spaces.Discrete(2)

    def __init__(self, channels: int = 0, is_dict: bool = False) -> None:
        shape = (12, 16, channels) if channels else (12, 16)
        image = spaces.Box(0, 255, shape, np.uint8)
        self.image, self.is_dict = image, is_dict
        speed = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(screen=image, speed=speed) if is_dict else image

    def observe(self) -> Any:
        image = np.full(self.image.shape, self.steps, np.uint8)
        return {"screen": image, "speed": np.zeros(2, np.float32)} if self.is_dict else image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        del action
        self.steps += 1
        return self.observe(), float(self.steps), self.steps == LENGTH, False, {}


def factory(**settings: Any) -> GymEnvFactory:
    return GymEnvFactory(GymConfig(id=f"{__name__}:Screen", **settings))


def box(made: GymEnvFactory) -> BoxSpace:
    space = made.spec.observation
    assert isinstance(space, BoxSpace)
    return space


@pytest.mark.parametrize(
    ("kwargs", "settings", "shape"),
    [
        ({}, {"resize": [6, 8]}, (6, 8)),
        ({"channels": 3}, {"resize": [6, 8]}, (6, 8, 3)),
        ({"channels": 4}, {"grayscale": True, "resize": [8, 6]}, (8, 6)),
        ({"channels": 3}, {"grayscale": True}, (12, 16)),
        ({"channels": 1}, {"grayscale": True, "frame_stack": 4}, (4, 12, 16)),
        ({"channels": 3}, {"frame_stack": 2, "resize": [9, 9]}, (2, 9, 9, 3)),
    ],
)
def test_shapes(kwargs: dict[str, Any], settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert box(factory(kwargs=kwargs, **settings)).shape == shape


def test_a_pixel_becomes_the_mean_of_those_that_it_covers() -> None:
    config = GymConfig(id="", resize=[2, 2])
    image = np.array([[0, 30, 60], [90, 120, 150], [180, 210, 240]], np.uint8)
    # Weights 2/3, 1/3, 0 and 0, 1/3, 2/3 for rows and columns.
    np.testing.assert_array_equal(
        ImageChange((3, 3), config)(image, first=True), [[40, 80], [160, 200]]
    )
    halves = np.array([[1, 2, 4, 8], [1, 2, 4, 8], [9, 0, 0, 0], [0, 0, 0, 1]], np.uint8)
    expected = [[2, 6], [2, 0]]  # 1.5, 6, 2.25 and 0.25, to the nearest, ties to even
    np.testing.assert_array_equal(ImageChange((4, 4), config)(halves, first=True), expected)


def test_grey_is_the_luminance_of_a_colour() -> None:
    change = ImageChange((1, 3, 3), GymConfig(id="", grayscale=True))
    colours = np.array([[[255, 0, 0], [0, 255, 0], [10, 20, 30]]], np.uint8)
    # 0.2125 * 255, 0.7154 * 255, and 2.125 + 14.308 + 2.163
    np.testing.assert_array_equal(change(colours, first=True), [[54, 182, 19]])


def test_images_are_stacked_in_order_and_anew_in_each_episode() -> None:
    env = factory(frame_stack=3).make(training=True)
    assert factory(frame_stack=3).spec.stacked
    shown = [env.reset(0)[0, :, 0, 0].tolist()]
    for _ in range(LENGTH + 1):
        step = env.step(np.array([0]))
        shown.append(step.act_obs[0, :, 0, 0].tolist())
    assert shown[:4] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert shown[LENGTH:] == [[0, 0, 0], [0, 0, 1]]
    env.close()


def test_stored_stacks_do_not_change() -> None:
    env = factory(kwargs={"is_dict": True}, frame_stack=2).make(training=True)
    first = env.reset(0)["screen"]
    kept = first.copy()
    env.step(np.array([0]))
    np.testing.assert_array_equal(first, kept)
    env.close()


def test_only_the_images_of_a_dict_are_changed() -> None:
    made = factory(kwargs={"channels": 3, "is_dict": True}, resize=[6, 6], frame_stack=2)
    assert isinstance(made.spec.observation, DictSpace)
    shapes = {key: part.shape for key, part in made.spec.observation.spaces.items()}  # type: ignore[union-attr]
    assert shapes == {"screen": (2, 6, 6, 3), "speed": (2,)}


def test_skipped_frames_add_their_rewards_and_stop_at_the_end() -> None:
    made = factory(frame_skip=3, max_episode_steps=9)
    env = made.make(training=True)
    env.reset(0)
    steps = [env.step(np.array([0])) for _ in range(3)]
    assert [step.reward.item() for step in steps] == [1 + 2 + 3, 4 + 5 + 6, 7]
    assert [step.terminated.item() for step in steps] == [False, False, True]
    assert steps[0].next_obs[0, 0, 0] == 3
    env.close()


def test_the_environments_own_limit_counts_frames() -> None:
    assert GymEnvFactory(GymConfig(id="CartPole-v1", frame_skip=4)).spec.max_episode_steps == 125
    made = GymEnvFactory(GymConfig(id="CartPole-v1", frame_skip=3, num_envs=2))
    assert made.spec.max_episode_steps == math.ceil(500 / 3)
    env = made.make(training=True)  # one by one: the vector implementation skips no frames
    env.reset(0)
    assert env.step(np.array([0, 1])).reward.tolist() == [3, 3]
    env.close()


def test_settings_of_images_need_images() -> None:
    with pytest.raises(ConfigError, match=r"grayscale and frame_stack need images, .*CartPole-v1"):
        assert GymEnvFactory(GymConfig(id="CartPole-v1", frame_stack=2)).spec
    with pytest.raises(ConfigError, match=r"env\.resize must be \[height, width\], got \[84\]"):
        GymConfig(id="CartPole-v1", resize=[84])


class Odd(gym.Env[Any, Any]):
    """Images that are not uint8, although the space says so."""

    observation_space = gym.spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, pixel: Any) -> None:
        self.image = np.full((8, 8), pixel)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del seed, options
        return self.image, {}


@pytest.mark.parametrize("change", [{}, {"frame_stack": 2}, {"resize": [4, 4]}])
@pytest.mark.parametrize("pixel", [0.4, 300, float("nan")])
def test_an_image_that_does_not_fit_its_space_is_refused(pixel: Any, change: Any) -> None:
    config = GymConfig(id=f"{__name__}:Odd", kwargs={"pixel": pixel}, **change)
    with pytest.raises(BadStep, match="does not fit"):
        GymEnvFactory(config).make(training=True).reset(0)
