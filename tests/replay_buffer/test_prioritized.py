"""Prioritized replay: priorities, probabilities and importance weights, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.errors import NotFinite
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.dataset import DatasetRows
from border_cli.replay_buffer.prioritized import EPSILON, PrioritizedReplayBuffer


def buffer_of(spec, capacity, *, seed=0, **settings):
    config = PrioritizedConfig(capacity=capacity, **settings)
    return PrioritizedReplayBuffer(config, spec=spec, rng=np.random.default_rng(seed))


def slots(*numbers):
    return np.array(numbers, np.int64)


def with_errors(buffer, spec, make_rows, errors):
    """Pushes rows 0 … and sets their TD errors in one update."""
    buffer.push(make_rows(spec, 0, len(errors)))
    buffer.update_priorities(np.arange(len(errors)), np.array(errors, np.float32))
    return buffer


def test_a_priority_is_the_error_plus_epsilon_to_the_power_of_alpha(spec, make_rows):
    buffer = with_errors(buffer_of(spec, 4, alpha=0.5), spec, make_rows, [4.0, -9.0, 0.0])
    expected = [(4 + EPSILON) ** 0.5, (9 + EPSILON) ** 0.5, 0.001]  # sqrt(1e-6) = 0.001
    np.testing.assert_allclose(buffer._priorities.sums.get(slots(0, 1, 2)), expected, rtol=1e-12)


def test_new_rows_get_the_largest_priority_seen_so_far(spec, make_rows):
    buffer = buffer_of(spec, 4, alpha=1.0)
    buffer.push(make_rows(spec, 0, 2))
    np.testing.assert_array_equal(buffer._priorities.sums.get(slots(0, 1, 2, 3)), [1, 1, 0, 0])
    buffer.update_priorities(slots(0, 1), np.array([8.0, 0.5]))
    buffer.update_priorities(slots(0, 1), np.array([0.25, 0.5]))  # 8 is still the maximum
    buffer.push(make_rows(spec, 2, 5))  # wraps: slots 2, 3 and 0
    largest = 8 + EPSILON
    np.testing.assert_allclose(
        buffer._priorities.sums.get(slots(0, 1, 2, 3)), [largest, 0.5 + EPSILON, largest, largest]
    )
    assert buffer.max_priority == pytest.approx(largest)


@pytest.mark.parametrize("normalize", list(Normalize))
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_the_paper(spec, make_rows, normalize, beta):
    errors = np.array([0.01, 0.5, 1.0, 2.0, 8.0])
    settings = {"alpha": 0.7, "beta": beta, "normalize": normalize}
    buffer = with_errors(buffer_of(spec, 9, **settings), spec, make_rows, errors)
    for _ in range(20):
        batch = buffer.sample(3)
        p = (errors + EPSILON) ** 0.7
        paper = (len(p) * p / p.sum()) ** -beta  # weights of all rows
        chosen = paper[batch.index]
        largest = chosen.max() if normalize is Normalize.batch else paper.max()
        np.testing.assert_allclose(batch.weight, chosen / largest, rtol=1e-5)
        assert batch.weight.dtype == np.float32


def test_beta_moves_linearly_with_the_updates_and_then_stays(spec, make_rows):
    buffer = buffer_of(spec, 4, beta={"initial": 0.4, "final": 1.0, "steps": 3})
    buffer.push(make_rows(spec, 0, 4))
    betas = []
    for _ in range(6):
        betas.append(buffer.beta)
        batch = buffer.sample(2)  # sampling does not change beta
        buffer.update_priorities(batch.index, np.ones(2))
    np.testing.assert_allclose(betas, [0.4, 0.6, 0.8, 1.0, 1.0, 1.0])
    assert buffer.updates == 6


def test_beta_arrives_with_the_run_where_no_updates_are_named(spec, make_rows):
    buffer = buffer_of(spec, 4, beta={"initial": 0.4, "final": 1.0, "steps": None})
    buffer.push(make_rows(spec, 0, 4))
    betas = []
    for done in (0.0, 0.25, 0.5, 1.0):
        buffer.update_schedules(done)
        betas.append(buffer.beta)
        batch = buffer.sample(2)
        buffer.update_priorities(batch.index, np.ones(2))  # does not change beta
        assert buffer.beta == betas[-1]
    np.testing.assert_allclose(betas, [0.4, 0.55, 0.7, 1.0])


def test_each_equal_slice_of_the_total_gives_one_row(spec, make_rows):
    # probabilities 1/8, 3/8 and 1/2: exactly 1, 3 and 4 of 8 slices lie within the rows
    buffer = with_errors(buffer_of(spec, 3, alpha=1.0), spec, make_rows, [1.0, 3.0, 4.0])
    for _ in range(50):
        np.testing.assert_array_equal(buffer.sample(8).index, [0, 1, 1, 1, 2, 2, 2, 2])


def test_rows_are_drawn_as_often_as_their_priorities_say(spec, make_rows):
    errors = np.array([0.1, 0.2, 0.5, 1.0, 3.0, 7.0, 0.0])
    buffer = with_errors(buffer_of(spec, 5000, alpha=0.6), spec, make_rows, errors)
    p = (errors + EPSILON) ** 0.6
    expected = p / p.sum()
    draws = 20_000
    drawn = np.concatenate([buffer.sample(5).index.copy() for _ in range(draws // 5)])
    counts = np.bincount(drawn, minlength=len(errors))
    assert len(counts) == len(errors)  # no slot beyond the stored rows
    # Stratified draws vary less than independent ones, whose deviation is used here.
    slack = 5 * np.sqrt(draws * expected * (1 - expected)) + 1
    assert (np.abs(counts - draws * expected) < slack).all()


def test_sampled_rows_belong_to_their_index(dict_spec, make_rows):
    buffer = buffer_of(dict_spec, 40)
    buffer.push(make_rows(dict_spec, 0, 60))
    batch = buffer.sample(16)
    numbers = (batch.reward / 2).astype(int)
    np.testing.assert_array_equal(batch.index, numbers % 40)
    np.testing.assert_array_equal(batch.obs["level"], numbers)
    np.testing.assert_array_equal(batch.next_obs["screen"][:, 0, 0], numbers + 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_an_error_that_is_no_number_is_refused_by_name_and_changes_nothing(
    spec, make_rows, bad, alpha
):
    buffer = with_errors(buffer_of(spec, 4, alpha=alpha), spec, make_rows, [1.0, 2.0, 3.0])
    before = buffer._priorities.sums.get(np.arange(4)), buffer.max_priority
    message = rf"td_error is {bad} in row 1 of the batch \(slot 2 of .*\), update 2"
    with pytest.raises(NotFinite, match=message):
        buffer.update_priorities(slots(0, 2), np.array([9.0, bad], np.float32))
    np.testing.assert_array_equal(buffer._priorities.sums.get(np.arange(4)), before[0])
    assert (buffer.max_priority, buffer.updates) == (before[1], 1)


def test_of_a_row_sampled_twice_the_last_error_counts(spec, make_rows):
    buffer = with_errors(buffer_of(spec, 2, alpha=1.0), spec, make_rows, [1.0, 1.0])
    buffer.update_priorities(slots(0, 0), np.array([5.0, 2.0]))
    np.testing.assert_allclose(buffer._priorities.sums.get(slots(0, 1)), [2 + EPSILON, 1 + EPSILON])


def with_dataset(spec, make_rows, *, share, **settings):
    """Builds a buffer with rows 0, 1 and 2 of a data set and space for 4 rows of actors."""
    dataset = DatasetRows(
        id="my/numbers-v0", rows=[make_rows(spec, 0, 3)], steps=9, checksum="abc",
        grows=True, share=share,
    )  # fmt: skip
    config = PrioritizedConfig(capacity=4, alpha=1.0, beta=1.0, **settings)
    rng = np.random.default_rng(0)
    return PrioritizedReplayBuffer(config, spec=spec, rng=rng, dataset=dataset)


MIXED = np.array([1.0, 2.0, 5.0, 2.0, 6.0])  # priorities of 3 rows of a data set and 2 of actors


@pytest.mark.parametrize("normalize", list(Normalize))
@pytest.mark.parametrize(
    ("share", "weights"),
    [
        (0.5, [8 / 3, 8 / 6, 8 / 15, 8 / 4, 8 / 12]),  # 1 / (N p / sum p) within a part
        (None, [1, 1 / 2, 1 / 5, 1 / 2, 1 / 6]),  # 1 / p
    ],
)
def test_a_batch_with_rows_of_a_data_set_is_drawn_and_weighed_by_hand(
    spec, make_rows, normalize, share, weights
):
    buffer = with_dataset(spec, make_rows, share=share, normalize=normalize)
    buffer.push(make_rows(spec, 3, 5))
    buffer.update_priorities(slots(4, 0, 2, 3, 1), MIXED[[4, 0, 2, 3, 1]] - EPSILON)
    for _ in range(20):
        batch = buffer.sample(8)
        np.testing.assert_array_equal(batch.action, batch.index)
        # Both parts sum to 8, in 4 slices of 2. Their rows end at 1, 3 and 8, and at 2 and 8.
        np.testing.assert_array_equal(batch.index[2:], [2, 2, 3, 4, 4, 4])
        drawn = np.array(weights)[batch.index]
        largest = drawn.max() if normalize is Normalize.batch else max(weights)
        np.testing.assert_allclose(batch.weight, drawn / largest, rtol=1e-6)


@pytest.mark.parametrize("share", [None, 0.5])
def test_priorities_of_a_data_set_come_back_with_or_without_other_rows(spec, make_rows, share):
    def train(buffer):
        for count in range(20):
            batch = buffer.sample(6)
            buffer.update_priorities(batch.index, np.sin(batch.index + count))
        return [*buffer._priorities.first(7), *batch.index, *batch.weight]

    original, restored, empty = (with_dataset(spec, make_rows, share=share) for _ in range(3))
    original.push(make_rows(spec, 3, 9))  # wraps
    train(original)
    state, blocks = original.state_dict(), original.freeze(0).take()
    restored.load_state_dict(state)
    restored.load_rows(2, blocks)
    empty.load_state_dict(state)
    np.testing.assert_array_equal(empty._priorities.first(3), state["priorities"][:3])
    empty.push(make_rows(spec, 9, 12))
    train(empty)
    assert train(restored) == train(original)
