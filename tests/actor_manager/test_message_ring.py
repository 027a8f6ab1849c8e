"""The ring of messages between two processes: its writer and its reader."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.actor import Message
from border_cli.actor_manager.message_ring import MessageReader, MessageRing, MessageWriter
from border_cli.core.returns import Moments
from border_cli.core.types import Episode, Experience
from tests.support.actor_managers import kept
from tests.support.channels import SPECS, assert_same_rows, message_of

MESSAGES = 64


def make_ring(spec_name: str, **settings: Any) -> MessageRing:
    sizes: dict[str, Any] = {"capacity": 16, "messages": MESSAGES} | settings
    return MessageRing(SPECS[spec_name], **sizes)


@pytest.fixture
def ring() -> Iterator[MessageRing]:
    ring = make_ring("vector", capacity=8)
    yield ring
    ring.close()


def write_whole(writer: MessageWriter, message: Message) -> bool:
    """Writes a message; returns whether the ring accepted all of it."""
    return writer.write(message) is None


@pytest.mark.parametrize("spec_name", SPECS)
def test_what_goes_in_comes_out_in_order_whatever_the_sizes(spec_name: str) -> None:
    """Messages of five actors, some of them twice as large as the ring."""
    rng = np.random.default_rng(0)
    ring = make_ring(spec_name, returns=True)
    writer, reader = MessageWriter(ring), MessageReader(ring)
    written = env_steps = 0
    episodes: list[Episode] = []
    returns: list[Moments] = []
    from_actor: Counter[int] = Counter()
    arrived: list[Experience] = []
    unsent: Message | None = None
    for number in range(900):
        if unsent is None and number < 800 and rng.random() < 0.5:
            size = int(rng.integers(0, 33))
            ended = tuple(Episode(float(written), length) for length in range(rng.integers(0, 20)))
            returns_ = (Moments(size + 1, number / 3, number / 7),) if rng.random() < 0.8 else ()
            unsent = message_of(spec_name, written, size, episodes=ended, rng=rng)
            unsent = replace(unsent, actor_id=int(rng.integers(5)), returns=returns_)
            written += size
            env_steps += size + 1
            episodes += ended
            returns += returns_
            from_actor[unsent.actor_id] += size
        unsent = None if unsent is None else writer.write(unsent)
        if rng.random() < 0.6:
            arrived += [kept(experience) for experience in reader.take()]
        if rng.random() < 0.6:
            reader.release()
    assert unsent is None
    arrived += [kept(experience) for experience in reader.take()]
    assert_same_rows(spec_name, arrived, 0, written)
    assert written > 1_000
    assert [episode for message in arrived for episode in message.episodes] == episodes
    assert [moments for message in arrived for moments in message.returns] == returns
    assert sum(experience.env_steps for experience in arrived) == env_steps
    assert reader.rows == from_actor
    ring.close()


@pytest.mark.parametrize("rows", [8, 1, 0], ids=["rows", "odd", "messages"])
def test_what_was_taken_is_not_written_over_before_it_is_released(
    ring: MessageRing, rows: int
) -> None:
    """The ring is filled with rows, or with messages without rows."""
    writer, reader = MessageWriter(ring), MessageReader(ring)
    count = 0
    while write_whole(writer, message_of("vector", count * rows, rows)):
        count += 1
    assert count == {8: 1, 1: 8, 0: MESSAGES - 1}[rows]
    arrived = reader.take()
    last = message_of("vector", count * rows, rows)
    assert writer.write(last) is last
    assert not writer.has_space(last)
    assert_same_rows("vector", arrived, 0, count * rows)
    assert reader.release()
    assert not reader.release()
    assert write_whole(writer, last)
    assert_same_rows("vector", reader.take(), count * rows, (count + 1) * rows)


def test_threads_at_both_ends_keep_every_row(ring: MessageRing) -> None:
    writer, reader = MessageWriter(ring), MessageReader(ring)
    sizes = np.random.default_rng(1).integers(0, 12, 80).tolist()  # some are larger than the ring
    total = sum(sizes)

    def write() -> None:
        start = 0
        for size in sizes:
            unsent: Message | None = message_of("vector", start, size)
            while unsent is not None:
                unsent = writer.write(unsent)
            start += size

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    received = 0
    while received < total:
        for message in reader.take():
            rows = len(message.transitions)
            assert_same_rows("vector", [message], received, received + rows)
            received += rows
        reader.release()
    thread.join(5)
    assert not thread.is_alive()


class Killed(BaseException):
    """Simulates a SIGKILL: the writer executes nothing after it."""


class DyingWords:
    """A view of shared memory that raises `Killed` once its budget of stores is used up."""

    def __init__(self, real: memoryview, fuse: list[int]) -> None:
        self._real, self._fuse = real, fuse

    def __getitem__(self, at: int) -> int:
        return self._real[at]  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._real)

    def __setitem__(self, at: int, value: int) -> None:
        self._fuse[0] -= 1
        if self._fuse[0] < 0:
            raise Killed
        self._real[at] = value


@pytest.mark.parametrize("returns", [(), (Moments(6, 0.5, 2.0),)], ids=["", "returns"])
def test_a_writer_that_dies_at_any_store_leaves_nothing_half(returns: tuple[Moments, ...]) -> None:
    episodes = (Episode(1.0, 2), Episode(3.0, 4))
    stores = 4 + 5 + 1  # for two episodes, the header and the count of messages
    stores += 4 * len(returns)  # flag, count, mean, squares
    for stores_done in range(stores + 1):
        ring = make_ring("vector", capacity=8, returns=bool(returns))
        reader = MessageReader(ring)
        fuse = [stores_done]
        writer = MessageWriter(ring)
        real = {name: getattr(ring, name) for name in ("written", "headers", "episodes", "returns")}
        for name, words in real.items():
            setattr(ring, name, DyingWords(words, fuse))
        whole = stores_done == stores
        try:
            message = message_of("vector", 100, 6, episodes=episodes)
            writer.write(replace(message, returns=returns))
            assert whole
        except Killed:
            assert not whole
        for name, words in real.items():
            setattr(ring, name, words)
        arrived = reader.take()
        assert [len(experience.transitions) for experience in arrived] == [6] * whole
        assert [experience.episodes for experience in arrived] == [episodes] * whole
        assert [experience.returns for experience in arrived] == [returns] * whole
        reader.release()
        next_writer = MessageWriter(ring)
        unsent: Message | None = message_of("vector", 5, 7, episodes=(Episode(9.0, 9),))
        while unsent is not None:
            unsent = next_writer.write(unsent)
        arrived = reader.take()
        assert_same_rows("vector", arrived, 5, 12)
        assert sum((experience.episodes for experience in arrived), ()) == (Episode(9.0, 9),)
        assert not any(experience.returns for experience in arrived)
        ring.close()


def test_what_was_written_is_known_after_it_is_closed(ring: MessageRing) -> None:
    assert write_whole(MessageWriter(ring), message_of("vector", 0, 6))
    ring.close()
    assert ring.header(ring.written[0]) == (6, 7, 0)
