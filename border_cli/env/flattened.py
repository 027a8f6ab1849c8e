"""Recorded observations as an environment that flattens its observations makes them: by the rules
of Gymnasium's FlattenObservation, and by the space that the environment itself flattens."""

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
    """The space of which the environment flattens observations, where they are recorded before
    that; None where they are read as they are. Raises ConfigError where it flattens others."""
    if isinstance(recorded, spaces.Box) or not isinstance(config, GymConfig):
        return None
    with closing(construct(config)) as env:
        inside = (each.env for each in layers(env) if isinstance(each, FlattenObservation))
        space = next((each.observation_space for each in inside), None)
    if space is not None and space != recorded:
        raise ConfigError(
            f"{dataset} has observations {recorded}, but env.id={config.id} flattens {space}"
        )
    return space


def flat_space(space: Any) -> Any:
    """The Box of Gymnasium that values of this space are flattened to."""
    return spaces.flatten_space(space)


def flattened(space: Any, recorded: Any, count: int) -> NDArray[Any]:
    """So many observations of this space, each flattened; raises `BadStep` where one is not of the
    space. [T + 1, n]"""
    try:
        rows = [spaces.flatten(space, _at(recorded, t)) for t in range(count)]
    except (LookupError, TypeError, ValueError) as error:
        raise BadStep(f"an observation is not of {space}: {error}") from None
    return np.stack(rows)  # type: ignore[arg-type]  # arrays, as the space has a Box


def _at(recorded: Any, t: int) -> Any:
    """One of the observations that are stored by their parts."""
    if isinstance(recorded, Mapping):
        return {key: _at(part, t) for key, part in recorded.items()}
    if isinstance(recorded, tuple):
        return tuple(_at(part, t) for part in recorded)
    return recorded[t]
