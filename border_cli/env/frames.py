"""Repeated actions for any environment, and smaller, grey and stacked images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.raw_values import ValueConverter
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import raw_space
from border_cli.env.step_results import as_reward
from border_cli.errors import ConfigError

# Number of channels -> weights of the luminance, as in Gymnasium's GrayscaleObservation
RGB = [0.2125, 0.7154, 0.0721]
GRAY = {len(weights): np.array(weights, np.float32) for weights in ([1], RGB, [*RGB, 0])}


class ImageChange:
    """Reduces one image of an observation, and stacks it with those before."""

    def __init__(self, shape: tuple[int, ...], config: GymConfig) -> None:
        self._gray, self._count = config.grayscale, config.frame_stack
        self._stack = np.empty(0, np.uint8)
        self._weights = [*map(_area_weights, shape, config.resize or ())]
        self.shape = self(np.zeros(shape, np.uint8), first=True).shape

    def __call__(self, image: NDArray[np.uint8], *, first: bool) -> NDArray[np.uint8]:
        """Returns the reduced image, or with `frame_stack` the newest ones, oldest first. The first
        image of an episode is repeated."""
        newest = self._reduce(image)
        if self._count == 1:
            return newest
        before = [newest] * (self._count - 1) if first else self._stack[1:]
        self._stack = np.stack([*before, newest])
        return self._stack

    def _reduce(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A pixel becomes the mean of the pixels that it covers, as with OpenCV's INTER_AREA."""
        values: Any = image  # [H, W] or [H, W, C]
        if self._gray and values.ndim == 3:
            values = values @ GRAY[values.shape[2]]
        if self._weights:
            values = np.einsum("hH,wW,HW...->hw...", *self._weights, values, optimize=True)
        reduced: NDArray[np.uint8] = np.rint(values).astype(np.uint8)
        return reduced


class Frames(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action `frame_skip` times or until the episode ends, sums the rewards, and
    changes images."""

    def __init__(self, env: gym.Env[Any, Any], config: GymConfig) -> None:
        super().__init__(env)
        self._skip = config.frame_skip
        space: Any = env.observation_space
        images = _image_shapes(space) if config.changes_images else {}
        if config.changes_images and not images:
            raise ConfigError(
                "env.resize, grayscale and frame_stack need images, uint8 [height, width] or "
                "[height, width, channels] with 1, 3 or 4 channels; "
                f"env.id={config.id} observes {space}"
            )
        self._changes = {key: ImageChange(shape, config) for key, shape in images.items()}
        self._checks = {  # before an image is cast to uint8
            key: ValueConverter(raw_space(space[key] if key else space), _name_of(key))
            for key in images
        }
        changed = {
            key: spaces.Box(0, 255, change.shape, np.uint8) for key, change in self._changes.items()
        }
        if changed:
            self.observation_space = changed.get("") or spaces.Dict({**space.spaces, **changed})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._change(obs, first=True), info

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += as_reward(reward)
            if terminated or truncated:
                break
        return self._change(obs, first=False), total, terminated, truncated, info

    def _change(self, obs: Any, *, first: bool) -> Any:
        if "" in self._changes:
            return self._changes[""](self._checks[""](obs), first=first)
        changed = {
            key: change(self._checks[key](obs[key]), first=first)
            for key, change in self._changes.items()
        }
        return {**obs, **changed} if changed else obs


def _name_of(key: str) -> str:
    return f"the observation's {key!r}" if key else "the observation"


def _image_shapes(space: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the images by key; "" if the observation is a single array."""
    parts: dict[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    pixels = {key: part.shape for key, part in parts.items() if part.dtype == np.uint8}
    return {
        key: shape
        for key, shape in pixels.items()
        if len(shape) == 2 or (len(shape) == 3 and shape[2] in GRAY)
    }


def _area_weights(old: int, new: int) -> NDArray[np.float32]:
    """Returns how much each of `old` pixels contributes to each of `new` ones. [new, old]"""
    edges = np.linspace(0, old, new + 1)
    pixels = np.arange(old)
    ends = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: NDArray[np.float32] = (np.clip(ends, 0, None) * new / old).astype(np.float32)
    return weights
