"""The sizes that needs are counted from: rows, observations, weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from border_cli.core.config import RunConfig
from border_cli.core.interfaces import Agent
from border_cli.core.rows import storage_nbytes
from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec, Space
from border_cli.nn.unfilled import Unfilled
from border_cli.offline import dataset_size
from border_cli.registry import REPLAY_BUFFERS
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.ring_buffer import RingReplayBuffer
from border_cli.replay_buffer.sum_tree import FANOUT, TOP

PRIORITY_NBYTES = 8  # float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a run needs, at most."""

    what: str
    nbytes: int  # in memory, of all processes together; or on the disk
    settings: Mapping[str, object] = field(default_factory=dict)  # that it follows from
    reserved: int = 0  # bytes of the learner's address space, used or not

    @property
    def because(self) -> str:
        """Its settings as they are typed."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSizes:
    """How large an agent is."""

    parameters: int  # that actors get
    weights: int  # bytes of these
    state: int  # bytes of a checkpoint of it: with targets, optimiser and all
    units: int  # that have a bias: what a row becomes on its way through the networks
    on_host: bool  # computes in this machine's memory, not in a GPU's


def agent_sizes(agent: Agent) -> AgentSizes:
    """Counted from copies of its weights and state, which take no memory."""
    with Unfilled():
        arrays = agent.snapshot().arrays.values()
        state = _nbytes(agent.state_dict())
    return AgentSizes(
        parameters=sum(each.size for each in arrays),
        weights=sum(each.nbytes for each in arrays),
        state=state,
        units=sum(each.size for each in arrays if each.ndim == 1),
        on_host=not agent.device_name.startswith("cuda"),
    )


def _nbytes(state: Any) -> int:
    """Bytes of all tensors and arrays of a state."""
    if isinstance(state, Mapping):
        return sum(_nbytes(each) for each in state.values())
    if isinstance(state, list | tuple):
        return sum(_nbytes(each) for each in state)
    return int(getattr(state, "nbytes", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySizes:
    """How large the replay buffer is; all 0 where it is of a kind that nobody can tell of."""

    capacity: int  # rows that actors can add
    dataset: int = 0  # rows of a data set, which stay
    row: int  # bytes of one row as it is stored
    trees: int  # bytes of the priorities and the sums over them
    priorities: int  # bytes of the priorities alone, as a checkpoint holds them

    @property
    def nbytes(self) -> int:
        return (self.dataset + self.capacity) * self.row + self.trees


def replay_sizes(config: RunConfig, spec: EnvSpec) -> ReplaySizes:
    """Of the buffer these settings choose; nothing is allocated."""
    settings = config.replay_buffer
    known = issubclass(REPLAY_BUFFERS.load(settings), RingReplayBuffer)
    trees = 0
    if known and isinstance(settings, PrioritizedConfig):
        trees = tree_nbytes(settings.capacity) * (1 + (settings.normalize == Normalize.buffer))
    learned = dataset_size(config)
    return ReplaySizes(
        capacity=0 if config.trainer.offline else settings.capacity,
        dataset=learned.steps if learned else 0,
        row=storage_nbytes(spec, 1) if known else 0,
        trees=trees,
        priorities=settings.capacity * PRIORITY_NBYTES if trees else 0,
    )


def tree_nbytes(capacity: int) -> int:
    """Bytes of a `BlockTree`: the leaves, and levels of whole blocks above them."""
    nodes, held = capacity, 0
    while nodes > TOP:
        nodes = -(-nodes // FANOUT)
        held += nodes * FANOUT
    return (held + nodes) * PRIORITY_NBYTES


def encoded_nbytes(space: Space) -> int:
    """Bytes of one observation as networks take it: float32, choices one-hot."""
    if isinstance(space, DictSpace):
        return sum(encoded_nbytes(part) for part in space.spaces.values())
    if isinstance(space, BoxSpace):
        return 4 * math.prod(space.shape)
    return 4 * (space.n if isinstance(space, DiscreteSpace) else sum(space.nvec))
