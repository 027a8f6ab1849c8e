"""Networks of value-based agents, as tests want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from border_cli.core.spaces import Space
from border_cli.nn.architecture import Architecture
from border_cli.nn.network import Network
from border_cli.nn.numpy_network import ActingNetwork

A = TypeVar("A", bound=ActingNetwork)


def q_network(space: Space, hidden: Sequence[int], num_actions: int, seed: int) -> Network:
    """Q(s, ·) with weights of this seed."""
    generator = torch.Generator().manual_seed(seed)
    return Network(Architecture(space, hidden=tuple(hidden)), num_actions, generator)


def loaded(network: A, arrays: Mapping[str, NDArray[Any]]) -> A:
    """The network with these weights of a snapshot."""
    network.load(arrays)
    return network
