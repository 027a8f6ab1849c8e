"""Rate limiters of actors: in threads, and in other processes without a lock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from border_cli.actor_manager.message_ring import MessageReader
from border_cli.actor_manager.rate_limiter import Closed, RateLimiter
from border_cli.actor_manager.shared_channel import (
    BUDGET,
    COLLECTED,
    GRANTED,
    WAITS,
    ChannelWriter,
    SharedChannel,
)
from border_cli.actor_manager.shared_rate_limiter import SharedRateLimiter
from tests.support.channels import channel_of, message_of


def test_budgets_never_exceed_what_is_permitted() -> None:
    limiter = RateLimiter(burst=4)
    limiter.permit(10)
    assert [limiter.try_acquire(4) for _ in range(4)] == [4, 4, 2, 0]


def test_a_fraction_of_a_sample_is_not_granted() -> None:
    limiter = RateLimiter(burst=1)
    limiter.permit(1.75)
    assert limiter.try_acquire(5) == 1
    limiter.permit(2.0)
    assert limiter.try_acquire(5) == 1


def test_a_smaller_permission_takes_nothing_back() -> None:
    limiter = RateLimiter(burst=1)
    limiter.permit(3)
    limiter.permit(1)
    assert limiter.try_acquire(5) == 3


def test_without_a_limit_every_wish_is_granted() -> None:
    limiter = RateLimiter(burst=1)
    limiter.permit(math.inf)
    assert limiter.try_acquire(1_000_000) == 1_000_000


def test_returned_samples_can_be_granted_again_and_overruns_cannot() -> None:
    limiter = RateLimiter(burst=1)
    limiter.permit(10)
    limiter.try_acquire(10)
    limiter.give_back(3)
    assert limiter.try_acquire(10) == 3
    limiter.give_back(-2)
    limiter.permit(13)
    assert limiter.try_acquire(10) == 1


class Acquiring:
    """Actors in threads that wait for a budget of 100 samples each."""

    def __init__(self, limiter: RateLimiter, number: int) -> None:
        self.granted: list[int] = []
        self.threads = [
            threading.Thread(target=lambda: self.granted.append(limiter.acquire(100)), daemon=True)
            for _ in range(number)
        ]
        for thread in self.threads:
            thread.start()
        while limiter.waiting < number:
            threading.Event().wait(0.001)

    def join(self, timeout_s: float = 5) -> list[int]:
        """Returns their granted budgets, in ascending order."""
        for thread in self.threads:
            thread.join(timeout_s)
        return sorted(self.granted)


def test_a_waiting_actor_is_woken_for_a_burst_not_for_a_sample() -> None:
    limiter = RateLimiter(burst=10)
    actors = Acquiring(limiter, 1)
    for permitted in (1, 5, 9):
        limiter.permit(permitted)
    assert not actors.granted  # no limit so far allows a grant
    limiter.permit(12)
    assert actors.join() == [12]


def test_closing_ends_the_waits() -> None:
    limiter = RateLimiter(burst=1)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(Closed):
            limiter.acquire(1)
        ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    limiter.close()
    thread.join(5)
    assert ended.is_set()
    with pytest.raises(Closed):
        limiter.pause(60)


def test_while_the_learner_waits_one_sample_is_worth_waking_for() -> None:
    limiter = RateLimiter(burst=10)
    limiter.permit(1)
    actors = Acquiring(limiter, 1)
    limiter.set_urgent(True)
    assert actors.join() == [1]


def test_actors_that_wait_share_what_becomes_free() -> None:
    limiter = RateLimiter(burst=10)
    actors = Acquiring(limiter, 4)
    assert limiter.try_acquire(5) == 0  # waiting actors come first
    limiter.permit(40)
    actors.join(0.2)
    limiter.permit(60)
    assert actors.join()[0] >= 10


def test_what_is_left_of_a_permission_that_no_longer_grows_is_granted() -> None:
    # less than a burst is left, and the learner does not wait
    limiter = RateLimiter(burst=100)
    actors = Acquiring(limiter, 2)
    limiter.permit(75)
    limiter.permit(75)
    assert actors.join() == [37, 38]


def test_what_was_granted_before_a_resume_counts() -> None:
    limiter = RateLimiter(burst=1)
    limiter.resume(7)
    limiter.permit(5)
    assert limiter.try_acquire(10) == 0
    limiter.permit(10)
    assert limiter.try_acquire(10) == 3


class Actors:
    """Channels and their limiter, with simulated actors that collect samples on demand."""

    def __init__(self, number: int, n_buffer: int) -> None:
        self.channels = [channel_of("vector", capacity=4 * n_buffer) for _ in range(number)]
        self.limiter = SharedRateLimiter(self.channels, n_buffer)

    def remaining(self, actor: int) -> int:
        """Returns the samples that remain of its grant; negative if it has overrun the grant."""
        channel = self.channels[actor]
        return channel.learner[GRANTED] - channel.actor[COLLECTED]

    def make(self, actor: int, samples: int) -> None:
        self.channels[actor].actor[COLLECTED] += samples

    def use_up(self) -> None:
        for actor in range(len(self.channels)):
            self.make(actor, max(0, self.remaining(actor)))

    @property
    def granted(self) -> list[int]:
        return [channel.learner[GRANTED] for channel in self.channels]

    @property
    def made(self) -> int:
        return sum(channel.actor[COLLECTED] for channel in self.channels)

    def is_woken(self, actor: int) -> bool:
        """Returns whether the actor was woken since the last call."""
        pipe = self.channels[actor].pipe
        woken = bool(pipe._poll.poll(0))
        pipe.drain()
        return woken


ActorsOf = Callable[[int, int], Actors]


@pytest.fixture
def actors_of() -> Iterator[ActorsOf]:
    channels: list[SharedChannel] = []

    def _actors(number: int, n_buffer: int) -> Actors:
        actors = Actors(number, n_buffer)
        channels.extend(actors.channels)
        return actors

    yield _actors
    for channel in channels:
        channel.learner_pipe.close()
        channel.close()


def test_budgets_never_exceed_what_is_permitted_across_processes(actors_of: ActorsOf) -> None:
    actors = actors_of(3, 4)
    actors.limiter.permit(10)
    assert actors.granted == [4, 3, 3]
    actors.use_up()
    actors.limiter.permit(13)  # 3 samples are free: less than a burst
    assert sum(actors.granted) == 10
    actors.limiter.permit(14.5)
    assert sum(actors.granted) == 14


def test_without_a_limit_no_actor_is_held_back_again(actors_of: ActorsOf) -> None:
    actors = actors_of(2, 5)
    actors.limiter.permit(7)
    actors.channels[1].actor[WAITS] = BUDGET
    actors.is_woken(1)
    actors.limiter.permit(math.inf)
    actors.limiter.permit(3)  # changes nothing
    assert min(actors.remaining(0), actors.remaining(1)) > 1e18
    assert actors.is_woken(1)


def test_an_actor_that_waits_is_woken_for_a_burst_not_for_a_sample(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.channels[0].actor[WAITS] = BUDGET
    for permitted in (1, 5, 9):
        actors.limiter.permit(permitted)
        assert not actors.is_woken(0)
    actors.limiter.permit(12)
    assert actors.is_woken(0)
    assert actors.granted == [10]


def test_while_the_learner_waits_one_sample_is_worth_a_grant(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.limiter.permit(1)
    assert actors.granted == [0]
    actors.limiter.distribute(urgent=True)
    assert actors.granted == [1]


def test_what_is_left_of_a_permission_that_no_longer_grows_is_granted_across_processes(
    actors_of: ActorsOf,
) -> None:
    actors = actors_of(2, 100)
    actors.limiter.permit(75)
    assert actors.granted == [0, 0]
    actors.limiter.permit(75)
    assert sorted(actors.granted) == [37, 38]


def test_a_round_of_environments_may_overshoot_and_is_charged(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 4)
    actors.limiter.permit(4)
    actors.make(0, 6)  # two rounds of three environments
    assert actors.remaining(0) == -2
    actors.limiter.permit(8)
    assert actors.remaining(0) == 2
    actors.make(0, 3)
    assert actors.remaining(0) == -1
    actors.limiter.permit(12)
    assert sum(actors.granted) == 12  # a full budget of 4 would need 13


@pytest.mark.parametrize("n_buffer", [1, 2, 8])
def test_actors_share_a_scarce_permission(actors_of: ActorsOf, n_buffer: int) -> None:
    """Every actor uses up its grant at once, so that all of them always need another one."""
    actors = actors_of(3, n_buffer)
    for permitted in range(1, 601):
        actors.limiter.permit(permitted)
        actors.limiter.distribute(urgent=True)
        actors.use_up()
    assert sum(actors.granted) == 600
    assert min(actors.granted) >= 190


def test_what_died_with_a_process_is_made_again(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    channel = actors.channels[0]
    writer, reader = ChannelWriter(channel), MessageReader(channel.ring)
    actors.limiter.permit(20)
    actors.make(0, 8)
    writer.send(message_of("vector", 0, 5))
    assert channel.reap() == 3
    assert actors.remaining(0) == 5  # 2 were never collected, 3 were lost
    actors.make(0, 5)
    actors.limiter.permit(20)
    actors.make(0, actors.remaining(0))
    writer.send(message_of("vector", 5, 15))
    reader.take()
    assert (reader.rows[3], sum(actors.granted)) == (20, 20)


def test_the_learner_always_gets_what_its_next_update_needs(actors_of: ActorsOf) -> None:
    """The slack is one burst per actor, and at least two. Actors without budget send their rows."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        number, n_buffer = int(rng.integers(1, 5)), int(rng.integers(1, 20))
        ratio, warmup = float(rng.choice([0.25, 1, 3, 16])), int(rng.integers(0, 30))
        actors = actors_of(number, n_buffer)
        slack = max(2, number) * n_buffer
        arrived, unsent, updates = 0, [0] * number, 0
        while updates < 50:
            needed = max(1, warmup + updates * ratio)
            actors.limiter.permit(warmup + updates * ratio + slack)
            for attempt in range(1_000):
                if arrived >= needed:
                    break
                actors.limiter.distribute(urgent=True)
                actor = int(rng.integers(number))
                if actors.remaining(actor) > 0:
                    actors.make(actor, 1)
                    unsent[actor] += 1
                if actors.remaining(actor) <= 0 or unsent[actor] >= n_buffer:
                    arrived, unsent[actor] = arrived + unsent[actor], 0
                assert attempt < 999, "the learner waits forever"
            updates += 1
        assert actors.made <= warmup + 50 * ratio + slack
