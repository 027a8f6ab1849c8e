"""The gate between learner and actors."""

from __future__ import annotations

import math
import threading

import pytest

from border_cli.actor_manager.channel import Closed
from border_cli.actor_manager.gate import Gate


def test_leases_never_exceed_what_is_permitted() -> None:
    gate = Gate(burst=4)
    gate.permit(10)
    assert [gate.try_lease(4) for _ in range(4)] == [4, 4, 2, 0]


def test_a_fraction_of_a_sample_is_not_leased() -> None:
    gate = Gate(burst=1)
    gate.permit(1.75)
    assert gate.try_lease(5) == 1
    gate.permit(2.0)
    assert gate.try_lease(5) == 1


def test_a_smaller_permission_takes_nothing_back() -> None:
    gate = Gate(burst=1)
    gate.permit(3)
    gate.permit(1)
    assert gate.try_lease(5) == 3


def test_without_a_limit_every_wish_is_granted() -> None:
    gate = Gate(burst=1)
    gate.permit(math.inf)
    assert gate.try_lease(1_000_000) == 1_000_000


def test_what_is_given_back_can_be_leased_again_and_a_debt_cannot() -> None:
    gate = Gate(burst=1)
    gate.permit(10)
    gate.try_lease(10)
    gate.give_back(3)
    assert gate.try_lease(10) == 3
    gate.give_back(-2)
    gate.permit(13)
    assert gate.try_lease(10) == 1


def test_a_waiting_actor_is_woken_for_a_burst_not_for_a_sample() -> None:
    gate = Gate(burst=10)
    granted: list[int] = []
    thread = threading.Thread(target=lambda: granted.append(gate.lease(100)), daemon=True)
    thread.start()
    for permitted in (1, 5, 9):
        gate.permit(permitted)
    assert not granted  # it cannot have been served, whenever it looked
    gate.permit(12)
    thread.join(5)
    assert granted == [12]


def test_closing_wakes_who_waits() -> None:
    gate = Gate(burst=1)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(Closed):
            gate.lease(1)
        ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    gate.close()
    thread.join(5)
    assert ended.is_set()
    with pytest.raises(Closed):
        gate.wait_closed(60)


def test_while_the_learner_waits_one_sample_is_worth_waking_for() -> None:
    gate = Gate(burst=10)
    gate.permit(1)
    granted: list[int] = []
    thread = threading.Thread(target=lambda: granted.append(gate.lease(100)), daemon=True)
    thread.start()
    gate.urge(True)
    thread.join(5)
    assert granted == [1]


def test_actors_that_wait_share_what_becomes_free() -> None:
    gate = Gate(burst=10)
    granted: list[int] = []
    threads = [
        threading.Thread(target=lambda: granted.append(gate.lease(100)), daemon=True)
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while gate.waiting < 4:
        threading.Event().wait(0.001)
    assert gate.try_lease(5) == 0  # those who wait come first
    gate.permit(40)
    for thread in threads:
        thread.join(0.2)
    gate.permit(60)
    for thread in threads:
        thread.join(5)
    assert sorted(granted)[0] >= 10


def test_what_is_left_of_a_permission_that_no_longer_grows_is_leased() -> None:
    # less than a burst, and the learner that could be urgent about it does not wait
    gate = Gate(burst=100)
    leased: list[int] = []
    threads = [threading.Thread(target=lambda: leased.append(gate.lease(100))) for _ in range(2)]
    for thread in threads:
        thread.start()
    while gate.waiting < 2:
        threading.Event().wait(0.001)
    gate.permit(75)
    gate.permit(75)
    for thread in threads:
        thread.join(5)
    gate.close()  # ends what still waits
    assert sorted(leased) == [37, 38]


def test_what_was_leased_before_a_resume_counts() -> None:
    gate = Gate(burst=1)
    gate.resume(7)
    gate.permit(5)
    assert gate.try_lease(10) == 0
    gate.permit(10)
    assert gate.try_lease(10) == 3


def test_a_question_wakes_each_who_waits_once_and_gives_nothing() -> None:
    gate = Gate(burst=10)
    gate.permit(9)
    outcomes: list[int] = []

    def wait() -> None:
        outcomes.append(gate.lease(100))
        outcomes.append(gate.lease(100, answered=gate.asked))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while gate.waiting < 3:
        threading.Event().wait(0.001)
    assert gate.ask() == gate.asked == 1
    while len(outcomes) < 3 or gate.waiting < 3:
        threading.Event().wait(0.001)
    assert outcomes == [0, 0, 0]
    gate.permit(300)
    for thread in threads:
        thread.join(5)
    assert sorted(outcomes)[3:] == [100, 100, 100]


def test_before_anything_is_permitted_nobody_begins() -> None:
    gate = Gate(burst=10)
    begun: list[bool] = []

    def wait() -> None:
        gate.wait_opened()
        begun.append(gate.opened)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.permit(0)
    assert begun == []
    gate.permit(1)
    for thread in threads:
        thread.join(5)
    assert begun == [True, True]
    gate.close()
    with pytest.raises(Closed):
        gate.wait_opened()
