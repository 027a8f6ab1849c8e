"""Shared channels, and messages whose values are derived from their row number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Message
from border_cli.actor_manager.shared_channel import SharedChannel
from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Episode, Experience, Transitions, leaves
from border_cli.system.shared_memory import WakePipe
from tests.support.spaces import numbered, pixels, reals

SPECS = {
    "vector": EnvSpec(
        id="vector",
        observation=reals(3),
        action=DiscreteSpace(2),
        max_episode_steps=None,
    ),
    "image": EnvSpec(
        id="image",
        observation=pixels(2, 24, 24),  # too large for a packed row
        action=reals(2),
        max_episode_steps=None,
    ),
    "dict": EnvSpec(
        id="dict",
        observation=DictSpace({"place": reals(3), "picture": pixels(40, 40)}),
        action=DiscreteSpace(4),
        max_episode_steps=None,
    ),
}


def channel_of(spec_name: str, *, capacity: int, returns: bool = False) -> SharedChannel:
    """Returns a channel with its own pipe for the learner; the test closes both."""
    return SharedChannel(
        SPECS[spec_name], capacity=capacity, learner_pipe=WakePipe(), returns=returns
    )


def rows_of(spec_name: str, first: int, last: int) -> Transitions:
    """Returns the rows first … last - 1."""
    spec, numbers = SPECS[spec_name], np.arange(first, last)
    return Transitions(
        obs=numbered(spec.observation, numbers),
        action=numbered(spec.action, numbers),
        reward=numbers.astype(np.float32) / 2,
        discount=numbers.astype(np.float32) / 4,
        next_obs=numbered(spec.observation, numbers + 1),
    )


def message_of(
    spec_name: str,
    first: int,
    rows: int,
    *,
    episodes: tuple[Episode, ...] = (),
    rng: np.random.Generator | None = None,
) -> Message:
    """Builds a message of `rows` rows from `first` on, and `rows` + 1 env steps.

    With `rng` the rows are split into parts at random.
    """
    cuts = [0, rows] if rng is None else [0, *sorted(rng.integers(0, rows + 1, 2).tolist()), rows]
    spans = [(first + begin, first + end) for begin, end in pairwise(cuts)]
    return Message(
        actor_id=3,
        opt_steps=first,
        env_steps=rows + 1,
        parts=[rows_of(spec_name, begin, end) for begin, end in spans if end > begin],
        rows=rows,
        episodes=episodes,
    )


def columns(rows: Transitions) -> dict[str, NDArray[Any]]:
    """Returns every array of the rows under a unique name."""
    arrays = {"action": rows.action, "reward": rows.reward, "discount": rows.discount}
    for name, array in (("obs", rows.obs), ("next_obs", rows.next_obs)):
        arrays |= {f"{name} {number}": leaf for number, leaf in enumerate(leaves(array))}
    return arrays


def assert_same_rows(spec_name: str, arrived: list[Experience], first: int, last: int) -> None:
    """Asserts that the rows first … last - 1 arrived in order, with equal columns and dtypes."""
    expected = columns(rows_of(spec_name, first, last))
    parts = [columns(message.transitions) for message in arrived if len(message.transitions)]
    assert bool(parts) == (first < last)
    for name, column in expected.items():
        joined = [part[name] for part in parts]
        if first == last:
            continue
        assert {part.dtype for part in joined} == {column.dtype}
        np.testing.assert_array_equal(np.concatenate(joined), column)
