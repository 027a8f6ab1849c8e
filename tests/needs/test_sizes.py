"""Sizes that needs are counted from, held against what is really allocated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.config.compose import compose
from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace
from border_cli.core.words import size
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.needs import agent_sizes, encoded_nbytes, replay_sizes, tree_nbytes
from border_cli.registry import REPLAY_BUFFERS
from border_cli.replay_buffer.sum_tree import SumTree

BOX = BoxSpace((2, 3), "uint8", np.zeros((2, 3)), np.ones((2, 3)))


def test_a_million_rows_are_counted_and_not_allocated() -> None:
    config = compose("env=cartpole", "replay_buffer.capacity=1000000000000")
    # two observations of 4 float32, an int64 action, reward and discount: 48 bytes
    assert replay_sizes(config, env_factory(config).spec).nbytes == 48_000_000_000_000


def test_priorities_add_a_tree_for_their_sum_and_one_for_their_minimum() -> None:
    # 100,000 leaves in 3,125 blocks; their sums in 98 blocks of 32, with 98 sums on top
    tree = 8 * (100_000 + 98 * 32 + 98)
    assert tree_nbytes(100_000) == tree
    config = compose("env=cartpole", "replay_buffer=prioritized")
    spec = env_factory(config).spec
    assert replay_sizes(config, spec).nbytes == 4_800_000 + tree
    assert replay_sizes(config, spec).priorities == 800_000
    both = compose("env=cartpole", "replay_buffer=prioritized", "replay_buffer.normalize=buffer")
    assert replay_sizes(both, spec).nbytes == 4_800_000 + 2 * tree


@pytest.mark.parametrize("capacity", [1, 1_023, 1_024, 1_025, 32_768, 32_769, 1_234_567])
def test_a_tree_is_as_large_as_it_is_counted(capacity: int) -> None:
    assert tree_nbytes(capacity) == SumTree(capacity).nbytes


@pytest.mark.parametrize("choice", ["uniform", "prioritized"])
def test_a_replay_buffer_is_as_large_as_it_is_counted(choice: str) -> None:
    config = compose("env=acrobot", f"replay_buffer={choice}", "replay_buffer.capacity=3000")
    spec = env_factory(config).spec
    built = REPLAY_BUFFERS.build(config.replay_buffer, spec=spec, rng=np.random.default_rng(0))
    assert replay_sizes(config, spec).nbytes == built.nbytes


def test_an_agent_is_counted_with_targets_and_optimiser() -> None:
    config = compose("env=cartpole", "agent.hidden=[4]")
    found = agent_sizes(build_agent(config, env_factory(config).spec))
    assert found.parameters == (4 * 4 + 4) + (4 * 2 + 2)
    assert found.weights == 4 * found.parameters
    # weights, targets, two averages of Adam, its counter once for each of four tensors, and the
    # state of the generator of noise
    assert found.state == 4 * found.weights + 4 * 4 + torch.Generator().get_state().nbytes
    assert found.units == 4 + 2
    assert found.on_host


def test_an_agent_without_weights_takes_nothing() -> None:
    config = compose("env=cartpole", "agent=random")
    found = agent_sizes(build_agent(config, env_factory(config).spec))
    assert (found.parameters, found.weights, found.state, found.units) == (0, 0, 0, 0)


def test_observations_are_counted_as_networks_take_them() -> None:
    assert encoded_nbytes(BOX) == 4 * 6
    assert encoded_nbytes(DiscreteSpace(5)) == 4 * 5
    assert encoded_nbytes(MultiDiscreteSpace((2, 3))) == 4 * 5
    assert encoded_nbytes(DictSpace({"a": BOX, "b": DiscreteSpace(5)})) == 4 * 11


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (48, "48 B"),
        (28_224, "28.2 kB"),
        (412_000_000, "393 MiB"),
        (9_000_000_000, "8.38 GiB"),
        (29_420_578_406, "27.4 GiB"),
    ],
)
def test_sizes_read_well(nbytes: int, said: str) -> None:
    assert size(nbytes) == said
