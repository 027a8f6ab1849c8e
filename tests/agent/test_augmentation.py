"""Random image shifts: pixels, range of the shifts, and a resumed agent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.agent.augmentation import shift_batch, shift_images
from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.learner_config import Augmentation
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.errors import ConfigError
from border_cli.nn.batch import TensorBatch
from tests.support.spaces import numbers, pixels

IMAGE = pixels(1, 10, 10)


def spec(observation: BoxSpace) -> EnvSpec:
    return EnvSpec(
        id="A-v0", observation=observation, action=DiscreteSpace(2), max_episode_steps=None
    )


def agent(seed: int = 0, observation: BoxSpace = IMAGE) -> Dqn:
    config = DqnConfig(hidden=[8], augment=Augmentation.shift)
    return Dqn(config, spec=spec(observation), device="cpu", seed=seed)


def batch(rows: int = 4) -> Batch:
    rng = np.random.default_rng(1)
    return Batch(
        obs=rng.integers(256, size=(rows, 1, 10, 10), dtype=np.uint8),
        action=rng.integers(2, size=rows),
        reward=rng.random(rows, np.float32),
        discount=np.full(rows, 0.9, np.float32),
        next_obs=rng.integers(256, size=(rows, 1, 10, 10), dtype=np.uint8),
        weight=np.ones(rows, np.float32),
        index=np.arange(rows),
    )


def test_an_image_is_shifted_and_its_edge_repeated() -> None:
    image = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8)[None, None]
    images = image.expand(4, 1, 3, 3)
    moved = shift_images(images, torch.tensor([[1, 1], [0, 2], [2, 1], [0, 0]]), padding=1)
    assert moved[:, 0].tolist() == [
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
        [[2, 3, 3], [2, 3, 3], [5, 6, 6]],
        [[4, 5, 6], [7, 8, 9], [7, 8, 9]],
        [[1, 1, 2], [1, 1, 2], [4, 4, 5]],
    ]


def test_both_observations_are_shifted_by_up_to_four_pixels_each_on_its_own() -> None:
    rows = 2_000
    single = torch.zeros(rows, 1, 9, 9, dtype=torch.uint8)
    single[:, 0, 4, 4] = 1
    numbers = torch.zeros(rows, 1)
    original = TensorBatch(single, numbers, numbers, numbers, single, numbers)
    augmented = shift_batch(original, [""], torch.Generator().manual_seed(0))
    bright_pixels = [images.flatten(1).argmax(1) for images in (augmented.obs, augmented.next_obs)]
    # There are 9 x 9 possible shifts.
    assert all(set(positions.tolist()) == set(range(81)) for positions in bright_pixels)
    assert (bright_pixels[0] == bright_pixels[1]).float().mean() < 0.05
    assert augmented.reward is original.reward


def test_shifts_go_on_with_the_generator_of_a_checkpoint() -> None:
    straight, stopped, resumed = agent(), agent(), agent(seed=9)
    straight.update(batch())
    stopped.update(batch())
    resumed.load_state_dict(stopped.state_dict())
    straight.update(batch())
    resumed.update(batch())
    for expected, actual in zip(
        straight.online.parameters(), resumed.online.parameters(), strict=True
    ):
        assert torch.equal(expected, actual)


def test_a_shift_changes_what_is_learned() -> None:
    plain = Dqn(DqnConfig(hidden=[8]), spec=spec(IMAGE), device="cpu", seed=0)
    augmented = agent()
    plain.update(batch())
    augmented.update(batch())
    pairs = zip(plain.online.parameters(), augmented.online.parameters(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs)


def test_without_an_image_there_is_nothing_to_shift() -> None:
    with pytest.raises(ConfigError, match=r"^agent\.augment must be none: the observation has no"):
        agent(observation=numbers(3))
