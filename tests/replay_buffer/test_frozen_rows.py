"""Frozen rows stay as they were, whatever is pushed over them and whenever they are taken."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from sampling import sampled

from border_cli.replay_buffer.frozen_rows import FrozenSlots
from border_cli.replay_buffer.ring import Ring


def numbers(blocks):
    """Row numbers, told by every value of every block."""
    reward = next(block["reward"] for block in blocks if "reward" in block.dtype.names)
    found = (reward / 2).astype(int)
    for block in blocks:
        for name in block.dtype.names:
            if name.partition(".")[0] in ("obs", "next_obs", "action"):
                column = block[name].reshape(len(found), -1).astype(float)
                shift = name.startswith("next_obs")
                kind = block.dtype[name].base
                expected = (found + shift).astype(kind).astype(float)
                np.testing.assert_array_equal(
                    column, np.repeat(expected[:, None], column.shape[1], 1)
                )
    return found.tolist()


def all_of(frozen, max_rows=3):
    taken = []
    while (blocks := frozen.take(max_rows)) is not None:
        assert len(blocks[0]) <= max_rows
        taken += numbers(blocks)
    return taken


@pytest.mark.parametrize("kind", ["spec", "image_spec", "dict_spec"])
def test_every_block_of_every_row_is_taken_once_in_order(kind, request, make_rows):
    spec = request.getfixturevalue(kind)
    ring = Ring(spec, 10)
    ring.push(make_rows(spec, 0, 14))  # 4 … 13 are stored, across the wrap
    frozen = ring.freeze(0)
    assert (frozen.first, frozen.end) == (4, 14)
    assert all_of(frozen) == list(range(4, 14))
    assert frozen.take(1) is None


@pytest.mark.parametrize("seed", sampled([*range(200)], every=4))
def test_whatever_is_pushed_meanwhile_the_rows_are_those_of_the_moment(spec, make_rows, seed):
    chance = np.random.default_rng(seed)
    ring = Ring(spec, int(chance.integers(1, 10)))
    ring.push(make_rows(spec, 0, int(chance.integers(0, 21))))
    pushed = ring.pushed
    frozen = ring.freeze(int(chance.integers(0, 22)))
    stored = list(range(pushed))[max(0, pushed - ring.capacity) :]
    expected = [number for number in stored if number >= frozen.first]
    taken = []
    for size in chance.integers(-4, 12, 12).tolist():
        if size >= 0:
            ring.push(make_rows(spec, ring.pushed, ring.pushed + size))
        elif (blocks := frozen.take(-size)) is not None:
            taken += numbers(blocks)
    assert taken + all_of(frozen) == expected


class Overtaken(FrozenSlots):
    """The learner pushes while a copy is being made: before its first row, or after its last."""

    push_before = staticmethod(lambda: None)
    push_after = staticmethod(lambda: None)

    def take(self, max_rows):
        self._taking = True
        return super().take(max_rows)

    def _copy(self, start, stop):
        if not self.__dict__.pop("_taking", False):
            return super()._copy(start, stop)  # the learner's own
        self.push_before()
        rows = super()._copy(start, stop)
        self.push_after()
        return rows


@pytest.mark.parametrize("moment", ["push_before", "push_after"])
@pytest.mark.parametrize("count", [1, 3, 5, 6, 17])
def test_rows_overwritten_while_they_are_copied_are_laid_over(spec, make_rows, moment, count):
    ring = Ring(spec, 5)
    ring.push(make_rows(spec, 0, 7))
    frozen = Overtaken(ring._rows.blocks, first=2, end=7, slot=2)
    ring._frozen = frozen
    setattr(frozen, moment, lambda: ring.push(make_rows(spec, ring.pushed, ring.pushed + count)))
    assert all_of(frozen, 2) == [2, 3, 4, 5, 6]


def test_a_learner_that_pushes_at_full_speed_never_tears_a_row(spec, make_rows):
    ring = Ring(spec, 500)
    ring.push(make_rows(spec, 0, 700))
    news = [make_rows(spec, first, first + 7) for first in range(700, 2100, 7)]
    taken: list[list[int]] = []
    for k in range(20):
        frozen = ring.freeze(0)
        writer = threading.Thread(target=lambda each=frozen: taken.append(all_of(each, 11)))
        writer.start()
        for rows in news[10 * k : 10 * k + 10]:
            ring.push(rows)
        writer.join()
        assert taken[-1] == list(range(200 + 70 * k, 700 + 70 * k))


def test_freezing_again_ends_what_was_frozen_before(spec, make_rows):
    ring = Ring(spec, 4)
    ring.push(make_rows(spec, 0, 4))
    first, second = ring.freeze(0), ring.freeze(2)
    assert first.take(4) is None
    ring.push(make_rows(spec, 4, 8))
    assert all_of(second) == [2, 3]


def test_a_disk_that_hangs_does_not_fill_the_memory(spec, make_rows):
    ring = Ring(spec, 6)
    ring.push(make_rows(spec, 0, 6))
    frozen = FrozenSlots(ring._rows.blocks, first=0, end=6, slot=0, aside_nbytes=100)
    ring._frozen = frozen
    ring.push(make_rows(spec, 6, 8))  # 96 bytes aside
    assert len(frozen._aside) == 1
    ring.push(make_rows(spec, 8, 9))
    assert frozen.take(6) is None
    assert frozen._aside == []
    assert ring._frozen is None
