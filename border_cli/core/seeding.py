"""Independent random streams from one seed. A stream depends only on its path, so that adding an
actor or an environment changes no other stream."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np


class Branch(IntEnum):
    """The first element of every path. Changing a number changes the results of every seed."""

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
    """Returns the stream at `path`, identical to the one that `SeedSequence.spawn` creates."""
    return np.random.SeedSequence(seed, spawn_key=path)


def derived_seed(seed: int, *path: int) -> int:
    """Returns a 32-bit seed, for environments and torch."""
    return int(sequence(seed, *path).generate_state(1, np.uint32)[0])


def generator(seed: int, *path: int) -> np.random.Generator:
    """Returns a generator of the stream at `path`."""
    return np.random.Generator(np.random.PCG64(sequence(seed, *path)))


def restore_generator(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Restores a generator from a saved `bit_generator.state`."""
    rng.bit_generator.state = dict(state)


def derived_seeds(seed: int, num_actors: int) -> dict[str, Any]:
    """Returns the seeds for `run.json`; for each actor, the first seed of its environments."""
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
