"""What actors in other processes may make: the promises of the gate, kept without a lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from lanes import lane_of, parcel_of

from border_cli.actor_manager.lane import GRANTED, MADE, NOTHING, PERMISSION, WAITS, Lane
from border_cli.actor_manager.leases import Leases
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.actor_manager.ring_writer import RingWriter


class Actors:
    """Lanes and their leases, with actors that make as many samples as they are told."""

    def __init__(self, number: int, n_buffer: int) -> None:
        self.lanes = [lane_of("vector", capacity=4 * n_buffer) for _ in range(number)]
        self.leases = Leases(self.lanes, n_buffer)

    def left(self, actor: int) -> int:
        """Samples it may still make; below 0 it owes."""
        lane = self.lanes[actor]
        return lane.learner[GRANTED] - lane.actor[MADE]

    def make(self, actor: int, samples: int) -> None:
        self.lanes[actor].actor[MADE] += samples

    def use_up(self) -> None:
        for actor in range(len(self.lanes)):
            self.make(actor, max(0, self.left(actor)))

    @property
    def granted(self) -> list[int]:
        return [lane.learner[GRANTED] for lane in self.lanes]

    @property
    def made(self) -> int:
        return sum(lane.actor[MADE] for lane in self.lanes)

    def rings(self, actor: int) -> bool:
        """Whether its bell rang since the last look."""
        bell = self.lanes[actor].bell
        rang = bool(bell._poll.poll(0))
        bell.hush()
        return rang


ActorsOf = Callable[[int, int], Actors]


@pytest.fixture
def actors_of() -> Iterator[ActorsOf]:
    lanes: list[Lane] = []

    def _actors(number: int, n_buffer: int) -> Actors:
        actors = Actors(number, n_buffer)
        lanes.extend(actors.lanes)
        return actors

    yield _actors
    for lane in lanes:
        lane.learner_bell.close()
        lane.close()


def test_leases_never_exceed_what_is_permitted(actors_of: ActorsOf) -> None:
    actors = actors_of(3, 4)
    actors.leases.permit(10)
    assert actors.granted == [4, 3, 3]
    actors.use_up()
    actors.leases.permit(13)  # three free: less than a burst
    assert sum(actors.granted) == 10
    actors.leases.permit(14.5)
    assert sum(actors.granted) == 14


def test_a_fraction_of_a_sample_is_not_leased(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 1)
    actors.leases.permit(1.75)
    assert actors.granted == [1]
    actors.use_up()
    actors.leases.permit(2.0)
    assert actors.granted == [2]


def test_a_smaller_permission_takes_nothing_back(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 3)
    actors.leases.permit(3)
    actors.leases.permit(1)
    assert actors.granted == [3]


def test_without_a_limit_nobody_is_held_back_again(actors_of: ActorsOf) -> None:
    actors = actors_of(2, 5)
    actors.leases.permit(7)
    actors.lanes[1].actor[WAITS] = PERMISSION
    actors.rings(1)
    actors.leases.permit(math.inf)
    actors.leases.permit(3)  # changes nothing
    assert min(actors.left(0), actors.left(1)) > 1e18
    assert actors.rings(1)


def test_a_lease_is_renewed_once_half_of_it_is_used_up(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.leases.permit(1_000)
    assert actors.left(0) == 10
    actors.make(0, 4)
    actors.leases.share_out()
    assert actors.left(0) == 6
    actors.make(0, 1)
    actors.leases.share_out()
    assert actors.left(0) == 10


def test_an_actor_that_waits_is_woken_for_a_burst_not_for_a_sample(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.lanes[0].actor[WAITS] = PERMISSION
    for permitted in (1, 5, 9):
        actors.leases.permit(permitted)
        assert not actors.rings(0)
    actors.leases.permit(12)
    assert actors.rings(0)
    assert actors.granted == [10]


def test_nobody_is_woken_who_does_not_wait(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.lanes[0].actor[WAITS] = NOTHING
    actors.leases.permit(50)
    assert actors.granted == [10]
    assert not actors.rings(0)


def test_while_the_learner_waits_one_sample_is_worth_a_lease(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    actors.leases.permit(1)
    assert actors.granted == [0]
    actors.leases.share_out(urgent=True)
    assert actors.granted == [1]


def test_what_is_left_of_a_permission_that_no_longer_grows_is_leased(actors_of: ActorsOf) -> None:
    actors = actors_of(2, 100)
    actors.leases.permit(75)
    assert actors.granted == [0, 0]
    actors.leases.permit(75)
    assert sorted(actors.granted) == [37, 38]


def test_the_last_permission_is_used_up_to_the_last_sample(actors_of: ActorsOf) -> None:
    rng = np.random.default_rng(0)
    actors = actors_of(3, 7)
    while actors.made < 100:
        actors.leases.permit(100)
        actor = int(rng.integers(3))
        actors.make(actor, int(rng.integers(actors.left(actor) + 1)))
        assert sum(actors.granted) <= 100
    assert actors.granted == [lane.actor[MADE] for lane in actors.lanes]
    assert sum(actors.granted) == 100


def test_a_round_of_environments_may_overshoot_and_is_charged(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 4)
    actors.leases.permit(4)
    actors.make(0, 6)  # two rounds of three
    assert actors.left(0) == -2
    actors.leases.permit(8)
    assert actors.left(0) == 2
    actors.make(0, 3)
    assert actors.left(0) == -1
    actors.leases.permit(12)
    assert sum(actors.granted) == 12  # 13 were wished for


@pytest.mark.parametrize("n_buffer", [1, 2, 8])
def test_actors_share_a_scarce_permission(actors_of: ActorsOf, n_buffer: int) -> None:
    """Each makes its samples at once, so that all are always about to need a lease."""
    actors = actors_of(3, n_buffer)
    for permitted in range(1, 601):
        actors.leases.permit(permitted)
        actors.leases.share_out(urgent=True)
        actors.use_up()
    assert sum(actors.granted) == 600
    assert min(actors.granted) >= 190


def test_what_died_with_a_process_is_made_again(actors_of: ActorsOf) -> None:
    actors = actors_of(1, 10)
    lane = actors.lanes[0]
    writer, reader = RingWriter(lane), RingReader(0, lane)
    actors.leases.permit(20)
    actors.make(0, 8)
    writer.put(parcel_of("vector", 0, 5))
    assert lane.bury() == 3
    assert actors.left(0) == 5  # two that were never made, three that died
    actors.make(0, 5)
    actors.leases.permit(20)
    actors.make(0, actors.left(0))
    writer.put(parcel_of("vector", 5, 15))
    reader.take()
    assert (reader.rows, sum(actors.granted)) == (20, 20)


def test_the_learner_always_gets_what_its_next_update_needs(actors_of: ActorsOf) -> None:
    """With a slack of a lease per actor, two at least; actors send when they are held back."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        number, n_buffer = int(rng.integers(1, 5)), int(rng.integers(1, 20))
        ratio, warmup = float(rng.choice([0.25, 1, 3, 16])), int(rng.integers(0, 30))
        actors = actors_of(number, n_buffer)
        slack = max(2, number) * n_buffer
        arrived, unsent, updates = 0, [0] * number, 0
        while updates < 50:
            needed = max(1, warmup + updates * ratio)
            actors.leases.permit(warmup + updates * ratio + slack)
            for turn in range(1_000):
                if arrived >= needed:
                    break
                actors.leases.share_out(urgent=True)
                actor = int(rng.integers(number))
                if actors.left(actor) > 0:
                    actors.make(actor, 1)
                    unsent[actor] += 1
                if actors.left(actor) <= 0 or unsent[actor] >= n_buffer:
                    arrived, unsent[actor] = arrived + unsent[actor], 0
                assert turn < 999, "the learner waits for ever"
            updates += 1
        assert actors.made <= warmup + 50 * ratio + slack
