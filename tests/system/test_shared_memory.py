"""Memory shared by several processes, and the pipe that wakes one of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait

import numpy as np
import pytest

from border_cli.system.shared_memory import (
    CACHE_LINE,
    SharedArrays,
    WakePipe,
    anonymous_file,
    floats,
    integers,
)
from border_cli.system.start import StartMethod, start_context
from tests.support import leftovers

FORMS = [
    (np.dtype(np.int64), (3,)),
    (np.dtype(np.uint8), (5, 2)),
    (np.dtype([("a", np.float32), ("b", np.int64)]), (4,)),
    (np.dtype(np.float64), ()),
    (np.dtype(np.float32), (0, 7)),
]


def fill(shared: SharedArrays) -> None:
    """Writes to the arrays; runs in a child process."""
    shared.arrays[0][:] = [1, 2, 3]
    shared.arrays[1][:] = 7
    shared.arrays[2]["b"] = -1
    shared.arrays[3][...] = 0.5


def test_arrays_begin_with_zeros_and_share_no_cache_line() -> None:
    shared = SharedArrays(FORMS)
    assert [(array.dtype, array.shape) for array in shared.arrays] == FORMS
    assert not any(np.count_nonzero(array.view(np.uint8)) for array in shared.arrays[:2])
    addresses = [array.__array_interface__["data"][0] for array in shared.arrays]
    assert {address % CACHE_LINE for address in addresses} == {0}
    ends = [address + array.nbytes for address, array in zip(addresses, shared.arrays, strict=True)]
    assert all(end <= later for end, later in zip(ends, addresses[1:], strict=False))
    shared.close()


@pytest.mark.parametrize(
    "method", [StartMethod.forkserver, pytest.param(StartMethod.spawn, marks=pytest.mark.slow)]
)
def test_what_a_child_writes_is_seen_here(method: StartMethod) -> None:
    shared = SharedArrays(FORMS)
    child = start_context(method, []).Process(target=fill, args=(shared,))  # type: ignore[attr-defined]
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert shared.arrays[0].tolist() == [1, 2, 3]
    assert shared.arrays[1].min() == 7
    assert shared.arrays[2]["b"].tolist() == [-1] * 4
    assert shared.arrays[3] == 0.5
    child.close()
    shared.close()


def test_views_of_single_numbers_are_the_same_memory() -> None:
    shared = SharedArrays([(np.dtype(np.int64), (2,)), (np.dtype(np.float64), (2,))])
    whole, real = integers(shared.arrays[0]), floats(shared.arrays[1])
    whole[1], real[0] = 2**62, 0.25
    assert shared.arrays[0].tolist() == [0, 2**62]
    assert shared.arrays[1].tolist() == [0.25, 0.0]
    shared.close()


def test_a_segment_is_gone_once_it_is_closed_and_its_last_array_dropped() -> None:
    gc.collect()
    before = leftovers.segments()
    shared = SharedArrays(FORMS)
    array = shared.arrays[0]
    assert leftovers.segments() > before
    shared.close()
    shared.close()
    array[:] = 5  # still mapped
    assert leftovers.segments() > before
    del array
    assert leftovers.segments() == before


def test_a_segment_that_nobody_closed_goes_with_its_owner() -> None:
    gc.collect()
    before = leftovers.segments()
    shared = SharedArrays(FORMS)
    del shared
    assert leftovers.segments() == before


def test_an_anonymous_file_has_no_name() -> None:
    descriptor = anonymous_file()
    with open(descriptor, "r+b") as file:  # noqa: PTH123 - a descriptor, not a path
        assert file.read() == b""
        assert "(deleted)" in leftovers.open_files()[str(descriptor)]


@pytest.fixture
def pipe() -> Iterator[WakePipe]:
    wake_pipe = WakePipe()
    yield wake_pipe
    wake_pipe.close()


def is_woken(pipe: WakePipe) -> bool:
    return bool(wait([pipe.fileno()], 0))


def test_several_wake_ups_end_only_one_wait(pipe: WakePipe) -> None:
    assert not is_woken(pipe)
    for _ in range(3):
        pipe.wake()
    assert is_woken(pipe)
    pipe.wait(60)
    assert not is_woken(pipe)
    pipe.wait(0)  # returns at once


def test_wake_ups_that_are_never_read_cost_nothing(pipe: WakePipe) -> None:
    for _ in range(200_000):  # more than the capacity of a pipe
        pipe.wake()
    while is_woken(pipe):
        pipe.wait(0)
    pipe.wake()
    assert is_woken(pipe)


def test_a_wake_up_ends_a_wait(pipe: WakePipe) -> None:
    woken = threading.Event()

    def sleep() -> None:
        pipe.wait(60)
        woken.set()

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    pipe.wake()
    thread.join(5)
    assert woken.is_set()


@pytest.mark.parametrize(
    "method", [StartMethod.forkserver, pytest.param(StartMethod.spawn, marks=pytest.mark.slow)]
)
def test_another_process_can_wake(pipe: WakePipe, method: StartMethod) -> None:
    child = start_context(method, []).Process(target=pipe.__class__.wake, args=(pipe,))  # type: ignore[attr-defined]
    child.start()
    assert wait([pipe.fileno()], 30)
    child.join(30)
    child.close()


def test_a_closed_pipe_wakes_nothing_and_touches_no_other_file() -> None:
    pipe = WakePipe()
    pipe.close()
    pipe.close()
    other = WakePipe()  # reuses the descriptors of the closed pipe
    pipe.wake()
    assert not is_woken(other)
    other.close()


def test_a_pipe_that_was_not_closed_goes_with_its_owner() -> None:
    before = leftovers.open_files()
    pipe = WakePipe()
    assert leftovers.open_files() != before
    del pipe
    assert leftovers.open_files() == before
