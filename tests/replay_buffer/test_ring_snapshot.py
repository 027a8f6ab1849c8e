"""Frozen rows do not change, whatever is pushed and whenever they are taken."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from border_cli.replay_buffer.ring import Ring
from border_cli.replay_buffer.ring_snapshot import RingSnapshot
from tests.support.case_sampling import sampled


def numbers(blocks):
    """Returns the row numbers, and checks that all values of all blocks agree with them."""
    reward = next(block["reward"] for block in blocks if "reward" in block.dtype.names)
    row_numbers = (reward / 2).astype(int)
    for block in blocks:
        for name in block.dtype.names:
            if name.partition(".")[0] in ("obs", "next_obs", "action"):
                column = block[name].reshape(len(row_numbers), -1).astype(float)
                shift = name.startswith("next_obs")
                kind = block.dtype[name].base
                expected = (row_numbers + shift).astype(kind).astype(float)
                np.testing.assert_array_equal(
                    column, np.repeat(expected[:, None], column.shape[1], 1)
                )
    return row_numbers.tolist()


def take_all(frozen):
    taken = []
    while (blocks := frozen.take()) is not None:
        taken += numbers(blocks)
    return taken


ROW_NBYTES = 48  # bytes per row of `spec`


@pytest.mark.parametrize("kind", ["spec", "image_spec", "dict_spec"])
@pytest.mark.parametrize("chunk_nbytes", [1, 2**20])
def test_every_block_of_every_row_is_taken_once_in_order(kind, chunk_nbytes, request, make_rows):
    spec = request.getfixturevalue(kind)
    ring = Ring(spec, 10)
    ring.push(make_rows(spec, 0, 14))  # 4 … 13 are stored, across the wrap
    frozen = ring.freeze(0, chunk_nbytes=chunk_nbytes)
    assert (frozen.first, frozen.end) == (4, 14)
    assert take_all(frozen) == list(range(4, 14))
    assert frozen.take() is None


@pytest.mark.parametrize("seed", sampled([*range(200)], every=4))
def test_whatever_is_pushed_meanwhile_the_rows_are_those_of_the_moment(spec, make_rows, seed):
    rng = np.random.default_rng(seed)
    ring = Ring(spec, int(rng.integers(1, 10)))
    ring.push(make_rows(spec, 0, int(rng.integers(0, 21))))
    oldest, pushed = ring.pushed - ring.size, ring.pushed
    chunk_rows = int(rng.integers(1, 4))
    frozen = ring.freeze(int(rng.integers(0, 22)), chunk_nbytes=chunk_rows * ROW_NBYTES)
    expected = [*range(max(oldest, frozen.first), pushed)]
    taken, copied_end = [], frozen.first + 2 * chunk_rows  # two chunks are copied immediately
    for size in rng.integers(-2, 3, 12).tolist():
        if size > 0:
            ring.push(make_rows(spec, ring.pushed, ring.pushed + size))
        elif (blocks := frozen.take()) is not None:
            taken += numbers(blocks)
    taken += take_all(frozen)
    assert taken == expected[: len(taken)]
    assert len(taken) >= min(len(expected), copied_end - frozen.first)
    if ring.pushed - ring.capacity <= copied_end:  # no other row was overwritten
        assert taken == expected


class Overtaken(RingSnapshot):
    """Frozen rows with a push before or after every copy."""

    push_before = staticmethod(lambda: None)
    push_after = staticmethod(lambda: None)

    def _copy(self, start, stop):
        self.push_before()
        rows = super()._copy(start, stop)
        self.push_after()
        return rows


@pytest.mark.parametrize("moment", ["push_before", "push_after"])
@pytest.mark.parametrize("count", [1, 3, 5, 6, 17])
def test_rows_overwritten_while_they_are_copied_are_not_taken(spec, make_rows, moment, count):
    ring = Ring(spec, 5)
    ring.push(make_rows(spec, 0, 7))
    frozen = Overtaken(ring._rows.blocks, first=2, end=7, slot=2, chunk_nbytes=ROW_NBYTES)
    ring._frozen = frozen
    pushes = iter([2, count])  # the first push overwrites rows that were copied immediately
    setattr(
        frozen,
        moment,
        lambda: ring.push(make_rows(spec, ring.pushed, ring.pushed + next(pushes, 0))),
    )
    taken = take_all(frozen)
    assert taken == [2, 3, 4, 5, 6][: len(taken)]
    assert frozen.take() is None


def test_a_learner_that_pushes_at_full_speed_never_tears_a_row(spec, make_rows):
    ring = Ring(spec, 500)
    ring.push(make_rows(spec, 0, 700))
    new_rows = [make_rows(spec, first, first + 7) for first in range(700, 2100, 7)]
    taken: list[list[int]] = []
    for k in range(20):
        frozen = ring.freeze(0, chunk_nbytes=11 * ROW_NBYTES)
        writer = threading.Thread(target=lambda source=frozen: taken.append(take_all(source)))
        writer.start()
        for rows in new_rows[10 * k : 10 * k + 10]:
            ring.push(rows)
        writer.join()
        expected = list(range(200 + 70 * k, 700 + 70 * k))
        assert len(taken[-1]) >= 22
        assert taken[-1] == expected[: len(taken[-1])]


def test_freezing_again_ends_what_was_frozen_before(spec, make_rows):
    ring = Ring(spec, 4)
    ring.push(make_rows(spec, 0, 4))
    first, second = ring.freeze(0), ring.freeze(2)
    assert first.take() is None
    ring.push(make_rows(spec, 4, 8))
    assert take_all(second) == [2, 3]


def test_rows_that_a_disk_does_not_take_in_time_are_given_up(spec, make_rows):
    ring = Ring(spec, 6)
    ring.push(make_rows(spec, 0, 6))
    frozen = ring.freeze(0, chunk_nbytes=ROW_NBYTES)
    ring.push(make_rows(spec, 6, 8))  # overwrites rows that were copied immediately
    ring.push(make_rows(spec, 8, 9))
    assert take_all(frozen) == [0, 1]
    assert ring._frozen is None
