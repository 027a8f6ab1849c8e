"""An actor's end of the way from its process to the learner's: rows are written once, in order.

One writer, one reader, no lock. What is written counts once the number of messages says so; a
writer that is killed before leaves nothing that is ever read.
"""

from __future__ import annotations

import numpy as np

from border_cli.actor_manager.lane import (
    EPISODE,
    EPISODES,
    HEADER,
    LEARNER_WAITS,
    MESSAGES,
    OPT_STEPS,
    READ,
    RETURNS,
    ROOM,
    ROWS,
    STEPS,
    WRITTEN,
    Lane,
    wait_for,
)
from border_cli.actor_manager.proxy import Parcel, concatenate
from border_cli.core.returns import Moments
from border_cli.core.rows import column_of, columns_of
from border_cli.core.types import Transitions, map_array
from border_cli.process.memory import fence


class RingWriter:
    """The actor's end; goes on where an earlier process of the same actor stopped."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._messages = lane.actor[WRITTEN]
        self._rows, self._env_steps, self._episodes, _ = lane.header(self._messages)

    def put(self, parcel: Parcel) -> float:
        """Waits for room, in pieces where a parcel is larger than the ring; returns how long."""
        if parcel.rows <= self._lane.capacity and len(parcel.episodes) <= self._lane.capacity:
            return self._put(parcel)
        return sum(self._put(piece) for piece in pieces(parcel, self._lane.capacity))

    def _put(self, parcel: Parcel) -> float:
        lane, rows, episodes = self._lane, parcel.rows, parcel.episodes
        waited_s = 0.0
        if not self._has_room(rows, len(episodes)):
            waited_s = wait_for(lane, ROOM, lambda: self._has_room(rows, len(episodes)))
        if rows:
            self._write_rows(self._rows % lane.capacity, parcel.parts, rows)
        for number, episode in enumerate(episodes, self._episodes):
            at = EPISODE * (number % lane.capacity)
            lane.episodes[at] = episode.score
            lane.episodes[at + 1] = episode.length
        if lane.returns:
            self._write_returns(parcel.returns)
        at = HEADER * (self._messages % MESSAGES)
        self._rows += rows
        self._env_steps += parcel.env_steps
        self._episodes += len(episodes)
        self._messages += 1
        lane.headers[at + ROWS] = self._rows
        lane.headers[at + STEPS] = self._env_steps
        lane.headers[at + EPISODES] = self._episodes
        lane.headers[at + OPT_STEPS] = parcel.opt_steps
        fence()
        lane.actor[WRITTEN] = self._messages  # the one store by which all of it is there
        fence()
        if lane.learner[LEARNER_WAITS]:
            lane.learner_bell.ring()
        return waited_s

    def _has_room(self, rows: int, episodes: int) -> bool:
        lane = self._lane
        read = lane.learner[READ]
        if self._messages - read >= MESSAGES - 1:  # one more is kept: that of the last one read
            return False
        rows_read, _, episodes_read, _ = lane.header(read)
        return (
            self._rows + rows - rows_read <= lane.capacity
            and self._episodes + episodes - episodes_read <= lane.capacity
        )

    def _write_rows(self, start: int, parts: list[Transitions], rows: int) -> None:
        columns, before_end = self._lane.columns, self._lane.capacity - start
        if rows <= before_end:
            for name, column in columns.items():
                np.concatenate(
                    column_of(parts, name), out=column[start : start + rows], casting="same_kind"
                )
            return
        whole = columns_of(concatenate(parts))
        for name, column in columns.items():
            column[start:] = whole[name][:before_end]
            column[: rows - before_end] = whole[name][before_end:]

    def _write_returns(self, returns: tuple[Moments, ...]) -> None:
        """A count of 0 where the message has none: another one was there before."""
        at = RETURNS * (self._messages % MESSAGES)
        numbers = self._lane.returns
        numbers[at] = 0
        for each in returns:
            numbers[at], numbers[at + 1], numbers[at + 2] = each.count, each.mean, each.squares


def pieces(parcel: Parcel, capacity: int) -> list[Parcel]:
    """The same rows and episodes in order, none of the pieces above `capacity`."""
    whole = concatenate(parcel.parts) if parcel.parts else None
    count = max(-(-parcel.rows // capacity), -(-len(parcel.episodes) // capacity))
    made = []
    for number in range(count):
        part = slice(number * capacity, (number + 1) * capacity)
        rows = [_sliced(whole, part)] if whole is not None and parcel.rows > part.start else []
        made.append(
            Parcel(
                actor_id=parcel.actor_id,
                opt_steps=parcel.opt_steps,
                env_steps=parcel.env_steps if number == 0 else 0,
                parts=rows,
                rows=sum(len(each) for each in rows),
                episodes=parcel.episodes[part],
                returns=parcel.returns if number == 0 else (),
            )
        )
    return made


def _sliced(transitions: Transitions, part: slice) -> Transitions:
    return Transitions(
        obs=map_array(lambda array: array[part], transitions.obs),
        action=transitions.action[part],
        reward=transitions.reward[part],
        discount=transitions.discount[part],
        next_obs=map_array(lambda array: array[part], transitions.next_obs),
    )
