"""From the actors' messages into the replay buffer.

Rewards, actions and observations of every message are checked for NaN and infinity before they are
pushed, and float observations against the bounds of their space: samples outside are counted
(`out_of_bounds` in `run.json`, across resumes), and the first is reported.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Agent, ReplayBuffer
from border_cli.core.spaces import BoxSpace, DictSpace, Space
from border_cli.core.types import Array, Experience, State
from border_cli.errors import NotFinite
from border_cli.trainer.reporting import Counters, Window

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _FloatPart:
    """The floats of an observation, or of one key of it.

    Where the space has no bound, that is the greatest finite number.
    """

    key: str | None  # of a Dict space
    low: NDArray[np.floating]  # [shape]
    high: NDArray[np.floating]  # [shape]
    has_bounds: bool

    def of(self, observations: Array) -> NDArray[Any]:
        """The part of M observations.  [M, …]"""
        if not isinstance(observations, dict):
            return observations
        assert self.key is not None
        return observations[self.key]

    def is_sound(self, values: NDArray[Any]) -> bool:
        """Whether all are finite and within the bounds.  [M, …]"""
        if not self.has_bounds:
            return _all(np.isfinite(values))
        return _all((values >= self.low) & (values <= self.high))

    def beyond(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which numbers are not within the bounds.  [M, …]"""
        return (values < self.low) | (values > self.high)


def _float_parts(space: Space) -> list[_FloatPart]:
    named = space.spaces.items() if isinstance(space, DictSpace) else [(None, space)]
    return [
        _float_part(key, part)
        for key, part in named
        if isinstance(part, BoxSpace) and np.dtype(part.dtype).kind == "f"
    ]


def _float_part(key: str | None, space: BoxSpace) -> _FloatPart:
    least, most = np.finfo(space.dtype).min, np.finfo(space.dtype).max
    low, high = np.clip(space.low, least, most), np.clip(space.high, least, most)
    has_bounds = bool((low > least).any() or (high < most).any())
    return _FloatPart(key, low, high, has_bounds)


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
        window: Window,
        observation: Space,
    ) -> None:
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._counters = counters
        self._window = window
        self._float_parts = _float_parts(observation)
        self._samples_of: dict[int, int] = {}  # actor id -> samples taken in

    def state_dict(self) -> State:
        """The samples of each actor."""
        return {str(actor): samples for actor, samples in self._samples_of.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._samples_of = {int(actor): int(samples) for actor, samples in state.items()}

    def take(self, messages: list[Experience]) -> None:
        """Takes in messages in the order of their arrival."""
        for message in messages:
            rows = message.transitions
            if len(rows):
                self._check(message)
                self._replay_buffer.push(rows)
                if self._agent.observes:
                    self._agent.observe(rows)
            if message.returns:
                self._observe_returns(message)
            before = self._samples_of.get(message.actor_id, 0)
            self._samples_of[message.actor_id] = before + len(rows)
            self._counters.samples_total += len(rows)
            self._counters.env_steps += message.env_steps
            self._window.arrived(message)

    def _observe_returns(self, message: Experience) -> None:
        """A reward may arrive here before its transition, which may wait in an n-step window."""
        for each in message.returns:
            if not math.isfinite(each.squares):
                rows = len(message.transitions)
                raise NotFinite(
                    f"reward of {self._place(message, rows)} "
                    f"(update {self._counters.opt_steps:,}) is not finite"
                )
            self._agent.observe_returns(each)

    def _check(self, message: Experience) -> None:
        rows = message.transitions
        unsound = [
            (name, part, values)
            for name, observed in (("observation", rows.obs), ("next observation", rows.next_obs))
            for part in self._float_parts
            if not part.is_sound(values := part.of(observed))
        ]
        if unsound or not _is_finite(rows.reward) or not _is_finite(rows.action):
            self._refuse_not_finite(message)
            self._count_beyond(message, unsound)

    def _refuse_not_finite(self, message: Experience) -> None:
        rows = message.transitions
        named = [
            *(("observation", part.of(rows.obs)) for part in self._float_parts),
            ("action", rows.action),
            ("reward", rows.reward),
            *(("next observation", part.of(rows.next_obs)) for part in self._float_parts),
        ]
        bad = [
            (_first(~np.isfinite(values)), name, values)
            for name, values in named
            if not _is_finite(values)
        ]
        if not bad:
            return
        first, name, values = min(bad, key=lambda each: each[0])  # the cause, not what followed
        raise NotFinite(
            f"{name} of {self._place(message, first)} "
            f"(update {self._counters.opt_steps:,}) is not finite: "
            f"{values[first].tolist()}. The message containing it was discarded"
        )

    def _count_beyond(
        self, message: Experience, unsound: Sequence[tuple[str, _FloatPart, NDArray[Any]]]
    ) -> None:
        """Counts samples and not observations, because most observations are in two samples."""
        samples = np.zeros(len(message.transitions), np.bool_)  # [M]
        for name, part, values in unsound:
            beyond = part.beyond(values)  # [M, …]
            if not self._counters.out_of_bounds and not samples.any():
                place = tuple(np.argwhere(beyond)[0].tolist())
                log.warning(
                    "%s of %s%s is outside the bounds of its space: %s%s (allowed: %s to %s). "
                    "Such samples are still used; out_of_bounds in run.json counts them",
                    name, self._place(message, place[0]),
                    "" if part.key is None else f", key {part.key!r}",
                    values[place], f" at {list(place[1:])}" if place[1:] else "",
                    part.low[place[1:]], part.high[place[1:]],
                )  # fmt: skip
            samples |= beyond.reshape(len(beyond), -1).any(axis=1)
        self._counters.out_of_bounds += int(np.count_nonzero(samples))

    def _place(self, message: Experience, row: int) -> str:
        sample = self._samples_of.get(message.actor_id, 0) + row + 1
        return f"actor {message.actor_id}, sample {sample:,}"


def _is_finite(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "f" or _all(np.isfinite(values))


def _all(flags: NDArray[np.bool_]) -> bool:
    """Takes a third of the time of `all`, and is called four times per message."""
    return bool(np.count_nonzero(flags) == flags.size)


def _first(bad: NDArray[np.bool_]) -> int:
    """The first row with anything bad.  [M, …]"""
    return int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
