"""The slot of weights in shared memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.weights import forms_of
from border_cli.core.types import Snapshot


def snapshot(opt_steps: int, value: float, size: int = 4) -> Snapshot:
    arrays = {
        "bias": np.full(size, value, np.float32),
        "weight": np.full((size, 3), value, np.float64),
        "count": np.full((), int(value), np.int64),
    }
    return Snapshot(
        opt_steps=opt_steps, env_steps=10 * opt_steps, warm_up=opt_steps % 2 == 0, arrays=arrays
    )


@pytest.fixture
def slot() -> Iterator[SharedWeightSlot]:
    slot = SharedWeightSlot(forms_of(snapshot(0, 0.0)))
    yield slot
    slot.close()


def test_the_newest_comes_back_whole(slot: SharedWeightSlot) -> None:
    for number in range(1, 6):
        slot.publish(snapshot(number, number / 2))
    newer = slot.newer_than(2)
    assert newer is not None
    version, copy = newer
    assert version == 5
    assert (copy.opt_steps, copy.env_steps, copy.warm_up) == (5, 50, False)
    assert list(copy.arrays) == ["bias", "weight", "count"]
    for name, expected in snapshot(5, 2.5).arrays.items():
        assert copy.arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(copy.arrays[name], expected)
    assert slot.newer_than(5) is None


def test_a_copy_never_changes(slot: SharedWeightSlot) -> None:
    slot.publish(snapshot(1, 1.0))
    newer = slot.newer_than(0)
    assert newer is not None
    for number in range(2, 6):
        slot.publish(snapshot(number, float(number)))
    assert newer[1].arrays["weight"].tolist() == [[1.0] * 3] * 4


def test_weights_of_another_type_are_refused(slot: SharedWeightSlot) -> None:
    wrong = snapshot(1, 1.0)
    arrays = {name: array.astype(np.float16) for name, array in wrong.arrays.items()}
    with pytest.raises(TypeError, match="Cannot cast"):
        slot.publish(Snapshot(opt_steps=1, env_steps=1, warm_up=False, arrays=arrays))


class Overtaken(SharedWeightSlot):
    """A reader that is interrupted by publications between the copies of two arrays."""

    def __init__(self, times: int) -> None:
        super().__init__(forms_of(snapshot(0, 0.0)))
        self.left = times

    def _copy(self, version: int) -> Snapshot | None:
        words, arrays = self._places[version % 2]
        self._places[version % 2] = (words, _Interrupting(arrays, self._overtake))  # type: ignore[assignment]
        try:
            return super()._copy(version)
        finally:
            self._places[version % 2] = (words, arrays)

    def _overtake(self) -> None:
        if self.left:
            self.left -= 1
            writer = SharedWeightSlot.__new__(SharedWeightSlot)
            writer.__dict__.update(self.__dict__)
            writer._map()
            for _ in range(2):  # the second one overwrites what is being read
                number = writer._newest[0] + 1
                writer.publish(snapshot(number, float(number)))


class _Interrupting(list):  # type: ignore[type-arg]
    def __init__(self, arrays, interrupt) -> None:  # type: ignore[no-untyped-def]
        super().__init__(arrays)
        self._interrupt = interrupt

    def __iter__(self):  # type: ignore[no-untyped-def]
        for number, array in enumerate(super().__iter__()):
            if number == 1:
                self._interrupt()
            yield array


def test_a_reader_that_is_overtaken_reads_again() -> None:
    slot = Overtaken(times=3)
    slot.publish(snapshot(1, 1.0))
    newer = slot.newer_than(0)
    assert newer is not None
    version, copy = newer
    assert (version, copy.opt_steps) == (7, 7)
    assert {float(number) for array in copy.arrays.values() for number in array.flat} == {7.0}
    slot.close()


def test_no_reader_ever_sees_half_of_two_snapshots() -> None:
    size = 20_000  # large enough for interruptions within an array
    slot = SharedWeightSlot(forms_of(snapshot(0, 0.0, size)))
    ended = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def hammer() -> None:
        for number in range(1, 3_000):
            slot.publish(snapshot(number, float(number), size))
        ended.set()

    writer = threading.Thread(target=hammer, daemon=True)
    try:
        writer.start()
        version, copies = 0, 0
        while version < 2_999:
            newer = slot.newer_than(version)
            if newer is None:
                continue
            assert newer[0] > version
            version, copy = newer
            copies += 1
            assert copy.opt_steps == version
            for array in copy.arrays.values():
                assert array.min() == array.max() == version
        writer.join(5)
    finally:
        sys.setswitchinterval(interval)
    assert ended.is_set()
    assert copies > 1
    slot.close()
