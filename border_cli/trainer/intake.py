"""From the actors' messages into the replay buffer.

Rewards, actions and observations of every message are checked for NaN and infinity before they are
pushed, and float observations against the bounds of their space: samples outside are counted
(`out_of_bounds` in `run.json`, across resumes), and the first is reported.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Agent, ReplayBuffer
from border_cli.core.spaces import BoxSpace, DictSpace, Space
from border_cli.core.types import Array, Episode, Experience, State
from border_cli.errors import NotFinite
from border_cli.trainer.metrics import Counters, MetricsWindow

log = logging.getLogger(__name__)


class _FloatPart(NamedTuple):
    """The floats of an observation, or of one key of it."""

    key: str | None  # of a Dict space
    low: NDArray[np.floating]  # [shape]  the least finite number where the space has no bound
    high: NDArray[np.floating]  # [shape]

    def of(self, observations: Array) -> NDArray[Any]:
        """The part of M observations.  [M, …]"""
        return observations if not isinstance(observations, dict) else observations[str(self.key)]

    def within(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which numbers are within the bounds; a NaN or an infinity is not.  [M, …]"""
        return (values >= self.low) & (values <= self.high)


# Rewards and actions, whose bounds are not looked at.
_MOST = np.array(np.finfo(np.float32).max)
FINITE = _FloatPart(None, -_MOST, _MOST)


def _float_parts(space: Space) -> list[_FloatPart]:
    named = space.spaces.items() if isinstance(space, DictSpace) else [(None, space)]
    return [
        _FloatPart(key, *(np.nan_to_num(bound) for bound in (part.low, part.high)))
        for key, part in named
        if isinstance(part, BoxSpace) and np.dtype(part.dtype).kind == "f"
    ]


class Intake:
    """Pushes transitions, has the agent observe them, counts them, and refuses a NaN or an infinity
    with its name and step. Observations outside the bounds of their space are counted; the first
    is reported.

    Owned by the learner's thread.
    """

    def __init__(
        self,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        *,
        counters: Counters,
        window: MetricsWindow,
        observation: Space,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._counters = counters
        self._window = window
        self._on_episode = on_episode
        self._float_parts = _float_parts(observation)
        self._samples_of: Counter[str] = Counter()  # actor id -> samples taken in

    def state_dict(self) -> State:
        """The samples of each actor."""
        return dict(self._samples_of)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._samples_of = Counter(state)

    def take(self, messages: list[Experience]) -> None:
        """Takes in messages in the order of their arrival."""
        for message in messages:
            rows = message.transitions
            if len(rows):
                self._check(message)
                self._replay_buffer.push(rows)
                if self._agent.observes:
                    self._agent.observe(rows)
            for returns in message.returns:
                # A reward may arrive here before its transition, which waits in an n-step window.
                if not math.isfinite(returns.squares):
                    self._refuse("reward", message, len(rows))
                self._agent.observe_returns(returns)
            self._samples_of[str(message.actor_id)] += len(rows)
            self._counters.samples_total += len(rows)
            self._counters.env_steps += message.env_steps
            self._window.arrived(message)
        if self._on_episode is not None:  # last: what a callback raises loses no message
            for episode in [each for message in messages for each in message.episodes]:
                self._on_episode(episode)

    def _check(self, message: Experience) -> None:
        """Refuses a NaN or an infinity, and counts the samples beyond the bounds."""
        rows = message.transitions
        named = [
            *(("observation", part, part.of(rows.obs)) for part in self._float_parts),
            ("action", FINITE, rows.action),
            ("reward", FINITE, rows.reward),
            *(("next observation", part, part.of(rows.next_obs)) for part in self._float_parts),
        ]
        unsound = [each for each in named if not _all(each[1].within(each[2]))]
        if not unsound:
            return
        bad = [
            (int(np.argmax(_rows_with(~np.isfinite(values)))), name, values)
            for name, _, values in unsound
            if not _all(np.isfinite(values))
        ]
        if bad:
            row, name, values = min(bad, key=lambda each: each[0])  # the cause, not what followed
            self._refuse(name, message, row, f": {values[row].tolist()}")
        if not self._counters.out_of_bounds:
            self._warn_beyond(message, *unsound[0])
        # Samples and not observations, because most observations are in two samples.
        beyond = [_rows_with(~part.within(values)) for _, part, values in unsound]
        self._counters.out_of_bounds += int(np.count_nonzero(np.logical_or.reduce(beyond)))

    def _warn_beyond(
        self, message: Experience, name: str, part: _FloatPart, values: NDArray[Any]
    ) -> None:
        row, *place = np.argwhere(~part.within(values))[0].tolist()
        at = tuple(place)
        log.warning(
            "%s of %s%s is outside the bounds of its space: %s%s (allowed: %s to %s). "
            "Such samples are still used; out_of_bounds in run.json counts them",
            name, self._place(message, row), "" if part.key is None else f", key {part.key!r}",
            values[row][at], f" at {place}" if place else "", part.low[at], part.high[at],
        )  # fmt: skip

    def _refuse(self, name: str, message: Experience, row: int, value: str = "") -> NoReturn:
        raise NotFinite(
            f"{name} of {self._place(message, row)} (update {self._counters.opt_steps:,}) is not "
            f"finite{value}. The message containing it was discarded"
        )

    def _place(self, message: Experience, row: int) -> str:
        sample = self._samples_of[str(message.actor_id)] + row + 1
        return f"actor {message.actor_id}, sample {sample:,}"


def _all(flags: NDArray[np.bool_]) -> bool:
    """Takes a third of the time of `all`, and is called four times per message."""
    return bool(np.count_nonzero(flags) == flags.size)


def _rows_with(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rows with any flag.  [M, …] -> [M]"""
    return np.asarray(flags.reshape(len(flags), -1).any(axis=1))
