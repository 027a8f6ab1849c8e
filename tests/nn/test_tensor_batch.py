"""Conversion of batches to tensors, sharing memory where possible or copying on request."""

from __future__ import annotations

import numpy as np
import torch

from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.tensor_batch import TensorBatches, empty_batch
from tests.support.spaces import numbers, pixels

CPU = torch.device("cpu")


def batch_of(rows: int) -> Batch:
    """Builds a batch from columns of one structured array, as in a replay buffer."""
    packed = np.zeros(rows, [("reward", "f4"), ("discount", "f4"), ("a", "f4", 3), ("a2", "f4", 3)])
    packed["discount"] = 1
    packed["a2"] = 1
    return Batch(
        obs={"a": packed["a"], "b": np.zeros(rows, np.int64)},
        action=np.arange(rows),
        reward=packed["reward"],
        discount=packed["discount"],
        next_obs={"a": packed["a2"], "b": np.ones(rows, np.int64)},
        weight=np.ones(rows, np.float32),
        index=np.arange(rows),
    )


def test_on_the_cpu_tensors_share_the_memory_of_the_batch():
    batch = batch_of(2)
    tensors = TensorBatches(CPU, own_memory=False).convert(batch)
    batch.reward[:] = 7
    batch.obs["a"][:] = 8
    assert tensors.reward.tolist() == [[7], [7]]
    assert tensors.obs["a"][0].tolist() == [8, 8, 8]
    assert tensors.next_obs["b"].tolist() == [1, 1]
    assert tensors.action.dtype == torch.int64
    assert tensors.action.tolist() == [[0], [1]]
    assert tensors.weight.shape == tensors.discount.shape == (2, 1)


def test_the_same_arrays_stay_the_same_tensors_and_others_become_others():
    batches, batch, other = TensorBatches(CPU, own_memory=False), batch_of(2), batch_of(3)
    first = batches.convert(batch)
    assert batches.convert(batch) is first
    batch.reward[:] = 7
    assert batches.convert(other).reward.tolist() == [[0], [0], [0]]
    assert batches.convert(batch).reward.tolist() == [[7], [7]]


def test_with_own_memory_every_batch_is_copied_to_the_same_contiguous_tensors():
    batches, batch = TensorBatches(CPU, own_memory=True), batch_of(2)
    first = batches.convert(batch)
    batch.reward[:] = 7
    batch.obs["a"][:] = 8
    assert first.reward.tolist() == [[0], [0]]
    assert batches.convert(batch) is first
    assert first.reward.tolist() == [[7], [7]]
    assert first.obs["a"].tolist() == [[8, 8, 8]] * 2
    assert all(
        tensor.is_contiguous() for tensor in (first.obs["a"], first.next_obs["a"], first.reward)
    )
    assert first.action.tolist() == [[0], [1]]


def test_actions_of_several_numbers_keep_their_shape():
    box = numbers(2)
    spec = EnvSpec(id="x", observation=DiscreteSpace(3), action=box, max_episode_steps=None)
    tensors = TensorBatches(CPU, own_memory=False).convert(empty_batch(spec, 4))
    assert tensors.action.shape == (4, 2)
    assert tensors.action.dtype == torch.float32


def test_an_empty_batch_has_the_shapes_and_types_of_the_spaces():
    observation = DictSpace({"screen": pixels(2, 3), "level": DiscreteSpace(5)})
    spec = EnvSpec(id="x", observation=observation, action=DiscreteSpace(2), max_episode_steps=None)
    batch = empty_batch(spec, 4)
    assert len(batch) == 4
    assert (batch.obs["screen"].shape, batch.obs["screen"].dtype) == ((4, 2, 3), np.uint8)
    assert (batch.next_obs["level"].shape, batch.action.dtype) == ((4,), np.int64)
    assert not batch.obs["level"].any()
