"""Networks of value-based agents, as tests want them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from border_cli.core.spaces import Space
from border_cli.nn.architecture import Architecture
from border_cli.nn.network import Network


def q_network(space: Space, hidden: Sequence[int], num_actions: int, seed: int) -> Network:
    """Q(s, ·) with weights of this seed."""
    generator = torch.Generator().manual_seed(seed)
    return Network(Architecture(space, hidden=tuple(hidden)), num_actions, generator)
