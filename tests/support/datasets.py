"""Tiny data sets, written by Minari."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

CARTPOLE = "test/cartpole-v0"


@contextmanager
def datasets_in(folder: Path) -> Iterator[None]:
    """Makes Minari read and write its data sets in `folder` within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        yield


def episode(
    observations: Any,
    actions: Any,
    rewards: Sequence[float],
    *,
    terminated: bool = False,
    truncated: bool = False,
) -> EpisodeBuffer:
    """Builds an episode whose last step has the given flags."""
    ends = [False] * (len(rewards) - 1)
    return EpisodeBuffer(
        observations=observations,
        actions=actions,
        rewards=list(rewards),
        terminations=[*ends, terminated],
        truncations=[*ends, truncated],
    )


def write(
    dataset: str,
    episodes: list[EpisodeBuffer],
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    **metadata: Any,
) -> None:
    """Writes a data set of these episodes with Minari."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about missing author names
        written = minari.create_dataset_from_buffers(
            dataset,
            episodes,
            observation_space=observation_space,
            action_space=action_space,
            jpeg_encoding=False,
        )
    if metadata:
        written.storage.update_metadata(metadata)


def write_cartpole(
    dataset: str = CARTPOLE, *, episodes: int = 12, seed: int = 0, limit: int = 25, **metadata: Any
) -> int:
    """Writes random CartPole episodes, some of them truncated; returns their number of steps."""
    env = gym.make("CartPole-v1", max_episode_steps=limit)
    rng = np.random.default_rng(seed)
    recorded, steps = [], 0
    for number in range(episodes):
        obs, _ = env.reset(seed=100 * seed + number)
        observations, actions, rewards = [obs], [], []
        terminated = truncated = False
        while not (terminated or truncated):
            action = int(rng.integers(2))
            obs, reward, terminated, truncated, _ = env.step(action)
            observations.append(obs)
            actions.append(action)
            rewards.append(float(reward))
        steps += len(rewards)
        recorded.append(
            episode(
                np.array(observations), np.array(actions), rewards,
                terminated=terminated, truncated=truncated,
            )
        )  # fmt: skip
    write(dataset, recorded, env.observation_space, env.action_space, **metadata)
    env.close()
    return steps
