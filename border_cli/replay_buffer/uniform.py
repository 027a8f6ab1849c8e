"""A ring of transitions, each equally likely to be sampled (Lin 1992)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import FrozenRows, ReplayBuffer
from border_cli.core.rows import copied_rows
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import BoxSpace, EnvSpec, Space
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import ConfigError
from border_cli.replay_buffer.config import RingConfig
from border_cli.replay_buffer.ring import Ring, RingState
from border_cli.settings.run import ReplayBufferConfig

if TYPE_CHECKING:
    from border_cli.replay_buffer.dataset import DatasetRows

BLOCK = 32  # batches whose chances are drawn at once: one call of the generator for all


def is_stack(observation: Space) -> bool:
    """Whether an observation may be a stack of frames: uint8 [frames, height, width], or
    of images with channels."""
    return (
        isinstance(observation, BoxSpace)
        and observation.dtype == "uint8"
        and len(observation.shape) in (3, 4)
        and observation.shape[0] > 1
        and math.prod(observation.shape) > 0
    )


def stores_frames(config: ReplayBufferConfig, spec: EnvSpec) -> bool:
    """Whether a replay buffer with these settings stores frames; raises ConfigError where it shall
    and cannot."""
    wanted = config.frames if isinstance(config, RingConfig) else False
    if wanted is None:
        return spec.stacked and is_stack(spec.observation)
    if wanted and not is_stack(spec.observation):
        raise ConfigError(
            f"replay_buffer.frames=true needs stacked images, uint8 [frames, height, width]; "
            f"env.id={spec.id} has {_described(spec.observation)}"
        )
    return wanted


def _described(observation: Space) -> str:
    if not isinstance(observation, BoxSpace):
        return type(observation).__name__.removesuffix("Space")
    return f"{observation.dtype} {list(observation.shape)}"


def _ring_type(config: ReplayBufferConfig, spec: EnvSpec) -> type[Ring]:
    if not stores_frames(config, spec):
        return Ring
    from border_cli.replay_buffer.frames import FrameRing

    return FrameRing


class RingReplayBuffer(ReplayBuffer):
    """A replay buffer over a ring, however it samples; owns the ring and a generator.

    A state without its rows gives an empty buffer that continues to count and draw from there.
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
        """`extras`: columns of rows beside those of all runs."""
        ring = _ring_type(config, spec)
        self._dataset = dataset
        self._shared = dataset is not None and dataset.share is not None  # each batch
        self._rng = rng
        if dataset is None:
            self.ring = ring(spec, config.capacity, extras=extras)
            return
        # Without actors a ring of a single row stays empty, which no other code need know.
        capacity = config.capacity if dataset.grows else 1
        self.ring = ring(spec, capacity, most_fixed=dataset.steps, extras=extras)
        dataset.store(self.ring)

    @classmethod
    def row_nbytes(
        cls, config: ReplayBufferConfig, spec: EnvSpec, extras: Sequence[Column] = ()
    ) -> int:
        return _ring_type(config, spec).row_nbytes(spec, extras)

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Copies of the rows in these slots, for inspection. [M]"""
        return copied_rows(self.ring.gather(index))

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
        state = {**asdict(self.ring.state), "generator": self._rng.bit_generator.state}
        if self._dataset is not None:
            state["dataset"] = self._dataset.state(self.ring)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises `CheckpointError` where the data set is another one than it was."""
        if self._dataset is not None:
            self._dataset.require_same(state["dataset"], self.ring)
        numbers = {each.name: state[each.name] for each in fields(RingState)}
        self.ring.restore(RingState(**numbers))
        restore_generator(self._rng, state["generator"])

    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        if self.ring.restore_rows(first, chunk):
            self._rows_restored()

    def _rows_restored(self) -> None:
        """Called once all rows of a loaded state are stored again."""


class UniformReplayBuffer(RingReplayBuffer):
    """Every row is equally likely; only the learner's thread calls it."""

    _chances: Iterator[NDArray[np.float64]] = iter(())  # each [B]
    _index: NDArray[np.int64] = np.empty(0, np.int64)  # [B]

    def push(self, transitions: Transitions) -> None:
        self.ring.push(transitions)

    def sample(self, batch_size: int) -> Batch:
        """Draws with replacement; raises `RunFailed` while empty. Weights are 1."""
        return self.ring.gather(self._draw(batch_size))

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """The slots of the next batch, in an array that the next draw overwrites. [B]"""
        self.ring.require_rows(batch_size, of_actors=self._shared)
        if len(self._index) != batch_size:
            self._chances, self._index = iter(()), np.empty(batch_size, np.int64)
        chance = next(self._chances, None)
        if chance is None:
            self._chances = iter(self._rng.random((BLOCK, batch_size)))
            chance = next(self._chances)
        # The size is the one of now, so what was pushed since the draw is as likely as all else. A
        # product never rounds up to the size, and no slot is off its share by more than 2**-53.
        if self._shared:
            self._place_shares(chance)
        else:
            np.multiply(chance, self.ring.stored, out=self._index, casting="unsafe")
        return self._index

    def _place_shares(self, chance: NDArray[np.float64]) -> None:
        """Slots of the data set first, then as many of actors as are left. [B]"""
        assert self._dataset is not None
        fixed, count = self.ring.fixed, self._dataset.count_of(len(chance))
        np.multiply(chance[:count], fixed, out=self._index[:count], casting="unsafe")
        np.multiply(chance[count:], self.ring.size, out=self._index[count:], casting="unsafe")
        self._index[count:] += fixed

    def state_dict(self) -> State:
        drawn = list(self._chances)
        self._chances = iter(drawn)
        # [k, B]  drawn and not used yet
        chances = np.array(drawn).reshape(len(drawn), len(self._index))
        return {**super().state_dict(), "chances": chances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        chances = state["chances"]
        self._chances = iter(chances)
        self._index = np.empty(chances.shape[1], np.int64)
