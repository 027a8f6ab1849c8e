"""A way to wake a process that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import wait

import leftovers
import pytest

from border_cli.process.bell import Bell
from border_cli.process.start import StartMethod, start_context


@pytest.fixture
def bell() -> Iterator[Bell]:
    made = Bell()
    yield made
    made.close()


def is_heard(bell: Bell) -> bool:
    return bool(wait([bell.fileno()], 0))


def test_a_ring_is_heard_once_however_often_it_rang(bell: Bell) -> None:
    assert not is_heard(bell)
    for _ in range(3):
        bell.ring()
    assert is_heard(bell)
    bell.wait(60)
    assert not is_heard(bell)
    bell.wait(0)  # and does not last


def test_rings_that_nobody_hears_cost_nothing(bell: Bell) -> None:
    for _ in range(200_000):  # more than a pipe holds
        bell.ring()
    while is_heard(bell):
        bell.wait(0)
    bell.ring()
    assert is_heard(bell)


def test_a_ring_wakes_who_waits(bell: Bell) -> None:
    woken = threading.Event()

    def sleep() -> None:
        bell.wait(60)
        woken.set()

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    bell.ring()
    thread.join(5)
    assert woken.is_set()


@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.spawn])
def test_another_process_can_ring(bell: Bell, method: StartMethod) -> None:
    child = start_context(method, []).Process(target=bell.__class__.ring, args=(bell,))  # type: ignore[attr-defined]
    child.start()
    assert wait([bell.fileno()], 30)
    child.join(30)
    child.close()


def test_a_closed_bell_rings_for_nobody_and_touches_no_other_file() -> None:
    bell = Bell()
    bell.close()
    bell.close()
    other = Bell()  # takes the numbers of the closed one
    bell.ring()
    assert not is_heard(other)
    other.close()


def test_a_bell_that_nobody_closed_goes_with_its_owner() -> None:
    before = leftovers.open_files()
    bell = Bell()
    assert leftovers.open_files() != before
    del bell
    assert leftovers.open_files() == before
