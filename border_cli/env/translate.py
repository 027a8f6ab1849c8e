"""Raw observations, actions and recordings as rows, for code that steps no environment of ours.

What `env/gym_spaces.py` does step by step, for whole episodes at once, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.spaces import ACTION_MASK, LeafSpace, Space, has_masks, split_mask
from border_cli.core.types import Array, leaves, map_array
from border_cli.env.answers import Values, as_array, copied, observations
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.gym_spaces import action_reader, action_space, batch_of, observation_space
from border_cli.errors import BadStep


class GymTranslator:
    """Between raw observations and actions of Gymnasium and the rows of a policy.

    Raises BadStep with the environment's id for an observation that does not fit its space.
    """

    def __init__(self, observation: gym.Space[Any], action: gym.Space[Any], env_id: str) -> None:
        self._id = env_id
        self._space = observation_space(observation, env_id)
        self._raw_space = observation
        self._check = observations(observation)
        self._read = action_reader(action)
        self._read_batch = batch_of(action)

    def batch_size(self, observation: Any) -> int | None:
        """N where it has one axis more than one observation, None otherwise.

        Of a Dict the first key decides; `observations` refuses others that disagree.
        """
        space, first = self._raw_space, observation
        if isinstance(space, spaces.Dict) and isinstance(observation, Mapping):
            key, space = next(iter(space.spaces.items()))
            first = observation.get(key)
        values = as_array(first)
        if values is None or values.ndim != len(space.shape or ()) + 1:
            return None
        return len(values)

    def observation(self, observation: Any) -> Array:
        """One raw observation as one row.  [1, …]"""
        return map_array(lambda part: part[None], self._rows(observation))

    def observations(self, observations: Any, count: int) -> Array:
        """A batch of raw observations as rows.  [N, …]"""
        return self._rows(observations, count)

    def _rows(self, observation: Any, *count: int) -> Array:
        try:
            rows = copied(self._check(observation, *count))
            if has_masks(self._space) and not split_mask(rows)[1].any(axis=-1).all():
                raise BadStep(f"the {ACTION_MASK} leaves no action")
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        return rows

    def action(self, action: NDArray[Any]) -> Any:
        """One row of actions as the environment's `step` wants it."""
        return self._read(action)[0]

    def actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """N rows of actions as the `step` of a vector environment wants them.  [N, …]"""
        return self._read_batch(actions)


def spaces_of(observation: Any, action: Any, setting: str, name: str) -> tuple[Space, LeafSpace]:
    """Our names for the spaces of a recording; unsupported ones are refused with what chose it."""
    return observation_space(observation, name, setting), action_space(action, name, setting)


def observation_rows(space: Any, recorded: Any) -> Array:
    """Observations of an episode as rows; raises `BadStep` as for a played one. [T + 1, …]"""
    with np.errstate(over="ignore"):
        return copied(observations(space)(recorded, len(leaves(recorded)[0])))


def action_rows(space: Any, recorded: Any) -> NDArray[Any]:
    """Actions of an episode as rows; raises `BadStep` for impossible choices. [T], or [T, A]"""
    with np.errstate(over="ignore"):
        return np.array(Values(space, "the action")(recorded, len(recorded)), order="C")


def recorded_rows(space: Any, rows: Array) -> Any:
    """Rows as a data set of this space holds them: what the two above undo."""
    if isinstance(rows, dict):
        return {key: batch_of(part)(rows[key]) for key, part in space.spaces.items()}
    return batch_of(space)(rows)


def raw_parts(config: GymConfig) -> tuple[Any, Any, Any]:
    """Gymnasium's own observation space, action space and specification of an environment."""
    with closing(construct(config)) as env:
        return env.observation_space, env.action_space, env.spec
