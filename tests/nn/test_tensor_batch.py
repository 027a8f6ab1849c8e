"""A batch goes to torch without copies where it can."""

from __future__ import annotations

import numpy as np
import torch

from border_cli.core.types import Batch
from border_cli.nn.tensor_batch import to_tensors


def test_on_the_cpu_tensors_share_the_memory_of_the_batch():
    batch = Batch(
        obs={"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.int64)},
        action=np.array([1, 0]),
        reward=np.zeros(2, np.float32),
        discount=np.ones(2, np.float32),
        next_obs={"a": np.ones((2, 3), np.float32), "b": np.ones(2, np.int64)},
        weight=np.ones(2, np.float32),
        index=np.arange(2),
    )
    tensors = to_tensors(batch, torch.device("cpu"))
    batch.reward[:] = 7
    batch.obs["a"][:] = 8
    assert tensors.reward.tolist() == [7, 7]
    assert tensors.obs["a"][0].tolist() == [8, 8, 8]
    assert tensors.next_obs["b"].tolist() == [1, 1]
    assert tensors.action.dtype == torch.int64
