"""Saving and restoring replay buffers: a restored buffer continues bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.core.types import leaves
from border_cli.errors import CheckpointError
from tests.support.buffers import buffer_of, copy_rows
from tests.support.case_sampling import sampled

KINDS = ["uniform", "batch", "buffer"]


class History:
    """Applies the same random pushes, samples and updates of priorities to several buffers."""

    def __init__(self, spec, make_rows, seed):
        self.spec, self.make_rows = spec, make_rows
        self.rng = np.random.default_rng(seed)

    def run(self, buffers, steps):
        for _ in range(steps):
            capacity = buffers[0].capacity
            count = int(self.rng.integers(0, capacity // int(self.rng.integers(1, 9)) + 2))
            first = buffers[0].ring.pushed
            if self.rng.random() < 0.5:
                for buffer in buffers:
                    buffer.push(self.make_rows(self.spec, first, first + count))
            elif len(buffers[0]):
                self.sample(buffers, int(self.rng.choice([4, 4, 4, 33])))

    def sample(self, buffers, batch_size):
        batches = [buffer.sample(batch_size) for buffer in buffers]
        error = self.rng.standard_cauchy(batch_size)
        for buffer, batch in zip(buffers, batches, strict=True):
            if buffer.uses_priorities:
                buffer.update_priorities(batch.index, error)
        for other_batch in batches[1:]:
            for name in ("index", "weight", "obs", "action", "reward", "discount", "next_obs"):
                ours, theirs = getattr(batches[0], name), getattr(other_batch, name)
                for our_array, their_array in zip(leaves(ours), leaves(theirs), strict=True):
                    assert our_array.tobytes() == their_array.tobytes(), name


def trees(buffer):
    if not buffer.uses_priorities:
        return []
    return [level.tobytes() for tree in buffer._priorities._trees for level in tree._levels]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("capacity", [1, 2, 7, 31, 33, 100, 1030])
@pytest.mark.parametrize("seed", sampled([*range(6)], every=3))
def test_a_restored_buffer_continues_to_the_bit(spec, make_rows, kind, capacity, seed):
    history = History(spec, make_rows, [seed, capacity])
    original, restored = buffer_of(kind, spec, capacity), buffer_of(kind, spec, capacity, seed=1)
    history.run([original], 5 * seed)
    restored.load_state_dict(original.state_dict())
    copy_rows(original, restored, 50 * (1 + 11 * seed))
    assert len(restored) == len(original)
    assert restored.ring.pushed == original.ring.pushed
    assert trees(restored) == trees(original)
    history.run([original, restored], 25)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["image_spec", "dict_spec"])
def test_every_kind_of_row_comes_back(kind, name, request, make_rows):
    spec = request.getfixturevalue(name)
    original, restored = buffer_of(kind, spec, 10), buffer_of(kind, spec, 10)
    original.push(make_rows(spec, 0, 13))
    restored.load_state_dict(original.state_dict())
    copy_rows(original, restored, 200)
    History(spec, make_rows, 0).run([original, restored], 20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_does_not_change_when_the_buffer_goes_on(spec, make_rows, kind):
    history = History(spec, make_rows, 5)
    buffer = buffer_of(kind, spec, 20)
    history.run([buffer], 20)
    first, rows = buffer.state_dict(), buffer.freeze(0)
    expected = {
        name: np.copy(value) for name, value in first.items() if isinstance(value, np.ndarray)
    }
    generator = dict(first["generator"])
    oldest, pushed = rows.first, rows.end
    history.run([buffer], 20)
    assert (first["generator"], first["rows_pushed"]) == (generator, pushed)
    for name, array in expected.items():
        np.testing.assert_array_equal(first[name], array)
    restored = buffer_of(kind, spec, 20)
    restored.load_state_dict(first)
    restored.load_rows(oldest, rows.take())
    assert len(restored) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_rows_it_is_empty_and_goes_on_counting(spec, make_rows, kind):
    original, restored = buffer_of(kind, spec, 8), buffer_of(kind, spec, 8)
    original.push(make_rows(spec, 0, 11))
    History(spec, make_rows, 0).sample([original], 4)
    restored.load_state_dict(original.state_dict())
    assert (len(restored), restored.ring.pushed) == (0, 11)
    restored.push(make_rows(spec, 11, 14))
    assert restored.sample(64).action.tolist().count(11) > 0
    assert set(restored.sample(64).action) == {11, 12, 13}
    restored_again = buffer_of(kind, spec, 8)
    restored_again.load_state_dict(restored.state_dict())
    copy_rows(restored, restored_again, 100)
    History(spec, make_rows, 1).run([restored, restored_again], 20)
    if kind != "uniform":
        assert restored.updates > 1  # beta continues, too


def test_rows_that_are_not_the_next_ones_are_refused(spec, make_rows):
    original, restored = buffer_of("uniform", spec, 8), buffer_of("uniform", spec, 8)
    original.push(make_rows(spec, 0, 11))
    blocks = original.freeze(0).take()
    restored.load_state_dict(original.state_dict())
    for first in (4, 11):
        with pytest.raises(CheckpointError, match=f"rows {first} to {first + 8} are not"):
            restored.load_rows(first, blocks)
    restored.load_rows(3, [block[:4] for block in blocks])
    with pytest.raises(CheckpointError, match="rows 3 to 7 are not"):
        restored.load_rows(3, [block[:4] for block in blocks])
    assert len(restored) == 0


def test_rows_that_were_overwritten_before_the_state_was_taken_are_left_out(spec, make_rows):
    original, restored = buffer_of("uniform", spec, 8), buffer_of("uniform", spec, 8)
    original.push(make_rows(spec, 0, 6))
    before = original.freeze(0).take()
    original.push(make_rows(spec, 6, 11))
    restored.load_state_dict(original.state_dict())
    restored.load_rows(0, before)
    restored.load_rows(6, original.freeze(6).take())
    History(spec, make_rows, 0).run([original, restored], 20)


def test_rows_of_another_form_are_refused(image_spec, make_rows):
    original, restored = buffer_of("uniform", image_spec, 8), buffer_of("uniform", image_spec, 8)
    original.push(make_rows(image_spec, 0, 8))
    restored.load_state_dict(original.state_dict())
    blocks = original.freeze(0).take()
    short = [blocks[0][:3], *blocks[1:]]
    with pytest.raises(CheckpointError, match="the saved rows have types"):
        restored.load_rows(0, short)
    with pytest.raises(CheckpointError, match="the saved rows have types"):
        restored.load_rows(0, blocks[:2])
    with pytest.raises(CheckpointError, match="the saved rows have types"):
        restored.load_rows(0, [block.view(np.uint8) for block in blocks])
