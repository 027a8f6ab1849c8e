"""Conversion of batches to columns of either backend, which share memory where possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from border_cli.agent.backend_choice import make_backend
from border_cli.agent.config import DqnConfig
from border_cli.core.spaces import ACTION_MASK, DictSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import EPISODE, Batch
from border_cli.nn.backend import Backend
from border_cli.nn.batch import empty_batch
from border_cli.settings.networks import BackendName
from tests.support.spaces import numbers, pixels

BOTH = pytest.mark.parametrize("name", [BackendName.numpy, BackendName.torch])


def backend_of(name: BackendName, *, compile: bool = False) -> Backend:
    config = DqnConfig(backend=name, compile=compile)
    generator = np.random.default_rng(0)
    form = config.architecture(numbers(3))
    return make_backend(config, form, device="cpu", generator=generator, noise_seed=0)


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


@BOTH
def test_on_the_cpu_columns_share_the_memory_of_the_batch(name: BackendName):
    batch = batch_of(2)
    tensors = backend_of(name).convert(batch)
    batch.reward[:] = 7
    batch.obs["a"][:] = 8
    assert tensors.reward.tolist() == [[7], [7]]
    assert tensors.obs["a"][0].tolist() == [8, 8, 8]
    assert tensors.next_obs["b"].tolist() == [1, 1]
    assert str(tensors.action.dtype).removeprefix("torch.") == "int64"
    assert tensors.action.tolist() == [[0], [1]]
    assert tensors.weight.shape == tensors.discount.shape == (2, 1)


@BOTH
def test_the_same_arrays_stay_the_same_columns_and_others_become_others(name: BackendName):
    batches, batch, other = backend_of(name), batch_of(2), batch_of(3)
    first = batches.convert(batch)
    assert batches.convert(batch) is first
    batch.reward[:] = 7
    assert batches.convert(other).reward.tolist() == [[0], [0], [0]]
    assert batches.convert(batch).reward.tolist() == [[7], [7]]


def test_compiled_updates_get_every_batch_in_the_same_contiguous_tensors():
    batches, batch = backend_of(BackendName.torch, compile=True), batch_of(2)
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


@BOTH
def test_actions_of_several_numbers_keep_their_shape(name: BackendName):
    box = numbers(2)
    spec = EnvSpec(id="x", observation=DiscreteSpace(3), action=box, max_episode_steps=None)
    tensors = backend_of(name).convert(empty_batch(spec, 4))
    assert tensors.action.shape == (4, 2)
    assert str(tensors.action.dtype).removeprefix("torch.") == "float32"


@BOTH
def test_masks_are_separated_and_numbers_of_episodes_left_out(name: BackendName):
    mask, next_mask = np.array([[1, 0]], bool), np.array([[0, 1]], bool)
    seen = np.full((1, 3), 5, np.float32)
    batch = replace(
        batch_of(1),
        obs={"seen": seen, ACTION_MASK: mask},
        next_obs={"seen": seen, ACTION_MASK: next_mask},
        extras={EPISODE: np.zeros(1, np.int64), "value": np.full(1, 7, np.float32)},
    )
    columns = backend_of(name).convert(batch)
    assert (columns.mask.tolist(), columns.next_mask.tolist()) == ([[True, False]], [[False, True]])
    assert columns.obs.tolist() == columns.next_obs.tolist() == [[5, 5, 5]]
    assert columns.extras is not None
    assert {key: column.tolist() for key, column in columns.extras.items()} == {"value": [[7]]}


def test_an_empty_batch_has_the_shapes_and_types_of_the_spaces():
    observation = DictSpace({"screen": pixels(2, 3), "level": DiscreteSpace(5)})
    spec = EnvSpec(id="x", observation=observation, action=DiscreteSpace(2), max_episode_steps=None)
    batch = empty_batch(spec, 4)
    assert len(batch) == 4
    assert (batch.obs["screen"].shape, batch.obs["screen"].dtype) == ((4, 2, 3), np.uint8)
    assert (batch.next_obs["level"].shape, batch.action.dtype) == ((4,), np.int64)
    assert not batch.obs["level"].any()
