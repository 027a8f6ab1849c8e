"""The ring of messages between two processes: its two ends."""

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


def ring_of(spec_name: str, **settings: Any) -> MessageRing:
    given: dict[str, Any] = {"capacity": 16, "messages": MESSAGES} | settings
    return MessageRing(SPECS[spec_name], **given)


@pytest.fixture
def ring() -> Iterator[MessageRing]:
    made = ring_of("vector", capacity=8)
    yield made
    made.close()


def written_whole(writer: MessageWriter, message: Message) -> bool:
    """Whether all of it went in; it must lie in one piece."""
    return writer.write(message) is None


@pytest.mark.parametrize("spec_name", SPECS)
def test_what_goes_in_comes_out_in_order_whatever_the_sizes(spec_name: str) -> None:
    """Up to twice as much at a time as the ring holds, of five actors."""
    rng = np.random.default_rng(0)
    ring = ring_of(spec_name, returns=True)
    writer, reader = MessageWriter(ring), MessageReader(ring)
    written = env_steps = 0
    episodes: list[Episode] = []
    returns: list[Moments] = []
    from_actor: Counter[int] = Counter()
    arrived: list[Experience] = []
    left: Message | None = None
    for number in range(900):
        if left is None and number < 800 and rng.random() < 0.5:
            size = int(rng.integers(0, 33))
            ended = tuple(Episode(float(written), each) for each in range(rng.integers(0, 20)))
            seen = (Moments(size + 1, number / 3, number / 7),) if rng.random() < 0.8 else ()
            left = message_of(spec_name, written, size, episodes=ended, rng=rng)
            left = replace(left, actor_id=int(rng.integers(5)), returns=seen)
            written += size
            env_steps += size + 1
            episodes += ended
            returns += seen
            from_actor[left.actor_id] += size
        left = None if left is None else writer.write(left)
        if rng.random() < 0.6:
            arrived += [kept(each) for each in reader.take()]
        if rng.random() < 0.6:
            reader.release()
    assert left is None
    arrived += [kept(each) for each in reader.take()]
    assert_same_rows(spec_name, arrived, 0, written)
    assert written > 1_000
    assert [each for message in arrived for each in message.episodes] == episodes
    assert [each for message in arrived for each in message.returns] == returns
    assert sum(each.env_steps for each in arrived) == env_steps
    assert reader.rows == from_actor
    ring.close()


@pytest.mark.parametrize("rows", [8, 1, 0], ids=["rows", "odd", "messages"])
def test_what_was_taken_is_not_written_over_before_it_is_released(
    ring: MessageRing, rows: int
) -> None:
    """Full of rows, or of messages without rows."""
    writer, reader = MessageWriter(ring), MessageReader(ring)
    put = 0
    while written_whole(writer, message_of("vector", put * rows, rows)):
        put += 1
    assert put == {8: 1, 1: 8, 0: MESSAGES - 1}[rows]
    arrived = reader.take()
    last = message_of("vector", put * rows, rows)
    assert writer.write(last) is last
    assert not writer.has_space(last)
    assert_same_rows("vector", arrived, 0, put * rows)
    assert reader.release()
    assert not reader.release()
    assert written_whole(writer, last)
    assert_same_rows("vector", reader.take(), put * rows, (put + 1) * rows)


def test_threads_at_both_ends_keep_every_row(ring: MessageRing) -> None:
    writer, reader = MessageWriter(ring), MessageReader(ring)
    sizes = np.random.default_rng(1).integers(0, 12, 80).tolist()  # some larger than the ring
    total = sum(sizes)

    def write() -> None:
        start = 0
        for size in sizes:
            left: Message | None = message_of("vector", start, size)
            while left is not None:
                left = writer.write(left)
            start += size

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    seen = 0
    while seen < total:
        for each in reader.take():
            rows = len(each.transitions)
            assert_same_rows("vector", [each], seen, seen + rows)
            seen += rows
        reader.release()
    thread.join(5)
    assert not thread.is_alive()


class Killed(BaseException):
    """Stands for a SIGKILL: nothing runs after it."""


class DyingWords:
    """A view of shared words whose k-th store never happens."""

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
    stores = 4 + 5 + 1  # of the two episodes, of the header, of the count
    stores += 4 * len(returns)  # none, count, mean, squares
    for survived in range(stores + 1):
        ring = ring_of("vector", capacity=8, returns=bool(returns))
        reader = MessageReader(ring)
        fuse = [survived]
        dying = MessageWriter(ring)
        real = {name: getattr(ring, name) for name in ("written", "headers", "episodes", "returns")}
        for name, words in real.items():
            setattr(ring, name, DyingWords(words, fuse))
        whole = survived == stores
        try:
            message = message_of("vector", 100, 6, episodes=episodes)
            dying.write(replace(message, returns=returns))
            assert whole
        except Killed:
            assert not whole
        for name, words in real.items():
            setattr(ring, name, words)
        arrived = reader.take()
        assert [len(each.transitions) for each in arrived] == [6] * whole
        assert [each.episodes for each in arrived] == [episodes] * whole
        assert [each.returns for each in arrived] == [returns] * whole
        reader.release()
        after = MessageWriter(ring)
        left: Message | None = message_of("vector", 5, 7, episodes=(Episode(9.0, 9),))
        while left is not None:
            left = after.write(left)
        arrived = reader.take()
        assert_same_rows("vector", arrived, 5, 12)
        assert sum((each.episodes for each in arrived), ()) == (Episode(9.0, 9),)
        assert not any(each.returns for each in arrived)
        ring.close()


def test_what_was_written_is_known_after_it_is_closed(ring: MessageRing) -> None:
    assert written_whole(MessageWriter(ring), message_of("vector", 0, 6))
    ring.close()
    assert ring.header(ring.written[0]) == (6, 7, 0)
