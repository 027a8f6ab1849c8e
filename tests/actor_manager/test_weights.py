"""The slot of weights that processes share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from border_cli.actor_manager.shared_weights import SharedWeightSlot, packed, unpacked
from border_cli.actor_manager.weights import forms_of
from border_cli.core.types import Snapshot
from border_cli.nn.numpy_network import NumpyMlp


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
    made = SharedWeightSlot(forms_of(snapshot(0, 0.0)))
    yield made
    made.close()


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


def test_no_reader_ever_sees_half_of_two_snapshots() -> None:
    size = 20_000  # long enough to be interrupted within one array
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


def test_a_network_acts_with_packed_weights_without_a_copy_of_them() -> None:
    rng = np.random.default_rng(0)
    shapes = {"0": (5, 4), "1": (3, 5)}
    arrays: dict[str, np.ndarray] = {}
    for layer, shape in shapes.items():
        arrays[f"layers.{layer}.weight"] = rng.standard_normal(shape, np.float32)
        arrays[f"layers.{layer}.bias"] = rng.standard_normal(shape[0], np.float32)
    sent = Snapshot(opt_steps=1, env_steps=1, warm_up=False, arrays=arrays)
    memory = packed(sent)
    received = unpacked(memory, forms_of(sent))
    obs = rng.standard_normal((2, 4), np.float32)
    expected = NumpyMlp(arrays)(obs)
    network = NumpyMlp(received.arrays)
    np.testing.assert_array_equal(network(obs), expected)
    memory[:] = 0
    np.testing.assert_array_equal(network(np.ones((1, 4), np.float32)) - network(obs)[:1], 0)
