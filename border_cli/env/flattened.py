"""Flattening of recorded observations, for environments with Gymnasium's FlattenObservation. Uses
the same rules and the space that the environment itself flattens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, layers
from border_cli.errors import BadStep, ConfigError
from border_cli.settings.run import EnvConfig


def flattened_space(config: EnvConfig, recorded: Any, dataset: str) -> Any:
    """Returns the space to flatten recorded observations from; None if they need no flattening.
    Raises ConfigError if the environment flattens another space."""
    if isinstance(recorded, spaces.Box) or not isinstance(config, GymConfig):
        return None
    with closing(construct(config)) as env:
        inner_envs = (layer.env for layer in layers(env) if isinstance(layer, FlattenObservation))
        space = next((inner_env.observation_space for inner_env in inner_envs), None)
    if space is not None and space != recorded:
        raise ConfigError(
            f"{dataset} has observations {recorded}, but env.id={config.id} flattens {space}"
        )
    return space


def flat_space(space: Any) -> Any:
    """Returns the Box to which Gymnasium flattens values of this space."""
    return spaces.flatten_space(space)


def flatten_observations(space: Any, recorded: Any, count: int) -> NDArray[Any]:
    """Flattens `count` observations of a space. Raises `BadStep` if that fails. [T + 1, n]"""
    try:
        rows = [spaces.flatten(space, _at(recorded, t)) for t in range(count)]
    except (LookupError, TypeError, ValueError) as error:
        raise BadStep(f"an observation is not of {space}: {error}") from None
    return np.stack(rows)  # type: ignore[arg-type]  # arrays, as the space has a Box


def _at(recorded: Any, t: int) -> Any:
    """Returns observation t; nested observations are stored by their parts."""
    if isinstance(recorded, Mapping):
        return {key: _at(part, t) for key, part in recorded.items()}
    if isinstance(recorded, tuple):
        return tuple(_at(part, t) for part in recorded)
    return recorded[t]
