"""One seed, many independent streams. A stream depends on its own path only, so that adding an
actor or an environment leaves all others as they were."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np


class Branch(IntEnum):
    """The first step of every path below the user's seed. The numbers are part of a run."""

    LEARNER = 0
    REPLAY_BUFFER = 1
    EVALUATION = 2
    ACTOR = 3
    PROBE = 4


class ActorStream(IntEnum):
    """The streams of one incarnation of one actor."""

    ENV = 0
    EXPLORATION = 1


def sequence(seed: int, *path: int) -> np.random.SeedSequence:
    """The stream at `path`. Equals the children that `SeedSequence(seed).spawn` would give."""
    return np.random.SeedSequence(seed, spawn_key=path)


def derived_seed(seed: int, *path: int) -> int:
    """An integer of 32 bits (environments and torch take one)."""
    return int(sequence(seed, *path).generate_state(1, np.uint32)[0])


def generator(seed: int, *path: int) -> np.random.Generator:
    """A generator at `path`."""
    return np.random.Generator(np.random.PCG64(sequence(seed, *path)))


def restore_generator(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Sets a generator to what its `bit_generator.state` was."""
    rng.bit_generator.state = dict(state)


def derived_seeds(seed: int, num_actors: int) -> dict[str, Any]:
    """The seeds that follow from the one; those of the first incarnation of each actor."""
    return {
        "seed": seed,
        "learner": derived_seed(seed, Branch.LEARNER),
        "replay_buffer": derived_seed(seed, Branch.REPLAY_BUFFER),
        "evaluation": derived_seed(seed, Branch.EVALUATION),
        "actor_envs": [
            derived_seed(seed, Branch.ACTOR, actor_id, 0, ActorStream.ENV)
            for actor_id in range(num_actors)
        ],
    }
