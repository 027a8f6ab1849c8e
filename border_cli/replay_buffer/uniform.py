"""Uniform replay (Lin 1992), and the base of all replay buffers with a ring."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import FrozenRows, ReplayBuffer
from border_cli.core.rows import copy_rows
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import BoxSpace, EnvSpec, Space
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import ConfigError
from border_cli.replay_buffer.config import RingConfig
from border_cli.replay_buffer.ring import Ring
from border_cli.settings.run import ReplayBufferConfig

if TYPE_CHECKING:
    from border_cli.replay_buffer.dataset import DatasetRows

BLOCK = 32  # batches whose uniform numbers are drawn by one call of the generator


def is_stack(observation: Space) -> bool:
    """Returns whether an observation may be a stack of frames: uint8 [frames, height, width],
    possibly with channels."""
    return (
        isinstance(observation, BoxSpace)
        and observation.dtype == "uint8"
        and len(observation.shape) in (3, 4)
        and observation.shape[0] > 1
        and math.prod(observation.shape) > 0
    )


def stores_frames(config: ReplayBufferConfig, spec: EnvSpec) -> bool:
    """Returns whether a replay buffer with these settings stores frames; raises ConfigError if they
    require it for observations that are not stacks."""
    frames = config.frames if isinstance(config, RingConfig) else False
    if frames is None:
        return spec.stacked and is_stack(spec.observation)
    if frames and not is_stack(spec.observation):
        raise ConfigError(
            f"replay_buffer.frames=true needs stacked images, uint8 [frames, height, width]; "
            f"env.id={spec.id} has {_describe(spec.observation)}"
        )
    return frames


def _describe(observation: Space) -> str:
    if not isinstance(observation, BoxSpace):
        return type(observation).__name__.removesuffix("Space")
    return f"{observation.dtype} {list(observation.shape)}"


def _choose_ring(config: ReplayBufferConfig, spec: EnvSpec) -> type[Ring]:
    if not stores_frames(config, spec):
        return Ring
    from border_cli.replay_buffer.frames import FrameRing

    return FrameRing


class RingReplayBuffer(ReplayBuffer):
    """The base of replay buffers that store transitions in a ring; owns the ring and a generator.

    A state loaded without its transitions continues the saved numbering and random numbers with an
    empty ring.
    """

    def __init__(
        self,
        config: ReplayBufferConfig,
        *,
        spec: EnvSpec,
        rng: np.random.Generator,
        extras: Sequence[Column] = (),
        dataset: DatasetRows | None = None,
    ) -> None:
        """`extras` are columns in addition to those that every run has."""
        ring_type = _choose_ring(config, spec)
        self._dataset = dataset
        self._has_shares = dataset is not None and dataset.share is not None
        self._rng = rng
        if dataset is None:
            self.ring = ring_type(spec, config.capacity, extras=extras)
            return
        # Without actors the ring is never written; one row keeps the code uniform.
        capacity = config.capacity if dataset.grows else 1
        self.ring = ring_type(spec, capacity, most_fixed=dataset.steps, extras=extras)
        dataset.store(self.ring)

    @classmethod
    def row_nbytes(
        cls, config: ReplayBufferConfig, spec: EnvSpec, extras: Sequence[Column] = ()
    ) -> int:
        return _choose_ring(config, spec).row_nbytes(spec, extras)

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Returns copies of the transitions in these slots, for inspection. [M]"""
        return copy_rows(self.ring.gather(index))

    def __len__(self) -> int:
        return self.ring.stored

    @property
    def capacity(self) -> int:
        grows = self._dataset is None or self._dataset.grows
        return self.ring.fixed + (self.ring.capacity if grows else 0)

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes

    def freeze(self, first: int) -> FrozenRows:
        return self.ring.freeze(first)

    def state_dict(self) -> State:
        state = {**self.ring.state, "generator": self._rng.bit_generator.state}
        if self._dataset is not None:
            state["dataset"] = self._dataset.state(self.ring)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises `CheckpointError` if the data set differs from the saved one."""
        if self._dataset is not None:
            self._dataset.require_same(state["dataset"], self.ring)
        self.ring.restore(state)
        restore_generator(self._rng, state["generator"])

    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        if self.ring.restore_rows(first, chunk):
            self._finish_restore()

    def _finish_restore(self) -> None:
        """Called once all transitions of a loaded state have been restored."""


class UniformReplayBuffer(RingReplayBuffer):
    """Samples all transitions with equal probability; only the learner's thread calls it."""

    _uniforms: Iterator[NDArray[np.float64]] = iter(())  # [B] each, drawn in advance
    _index: NDArray[np.int64] = np.empty(0, np.int64)  # [B]

    def push(self, transitions: Transitions) -> None:
        self.ring.push(transitions)

    def sample(self, batch_size: int) -> Batch:
        """Samples with replacement and weight 1; raises `RunFailed` if the buffer is empty."""
        return self.ring.gather(self._draw(batch_size))

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """Returns the slots of the next batch, in an array that the next call overwrites. [B]"""
        self.ring.require_rows(batch_size, of_actors=self._has_shares)
        if len(self._index) != batch_size:
            self._uniforms, self._index = iter(()), np.empty(batch_size, np.int64)
        u = next(self._uniforms, None)
        if u is None:
            self._uniforms = iter(self._rng.random((BLOCK, batch_size)))
            u = next(self._uniforms)
        # Scaled by the current size, so transitions pushed since the numbers were drawn are as
        # likely as all others. The product is never rounded up to the size, and no probability is
        # off by more than 2**-53.
        if self._has_shares:
            self._draw_shares(u)
        else:
            np.multiply(u, self.ring.stored, out=self._index, casting="unsafe")
        return self._index

    def _draw_shares(self, u: NDArray[np.float64]) -> None:
        """Draws slots of the data set first, then slots of the actors. [B]"""
        assert self._dataset is not None
        fixed, count = self.ring.fixed, self._dataset.count_of(len(u))
        np.multiply(u[:count], fixed, out=self._index[:count], casting="unsafe")
        np.multiply(u[count:], self.ring.size, out=self._index[count:], casting="unsafe")
        self._index[count:] += fixed

    def state_dict(self) -> State:
        unused = list(self._uniforms)
        self._uniforms = iter(unused)
        # [k, B]  drawn but not used yet
        chances = np.array(unused).reshape(len(unused), len(self._index))
        return {**super().state_dict(), "chances": chances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        chances = state["chances"]
        self._uniforms = iter(chances)
        self._index = np.empty(chances.shape[1], np.int64)
