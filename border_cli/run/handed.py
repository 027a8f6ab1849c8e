"""What the learner's thread hands to the thread that writes a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from border_cli.core.interfaces import FrozenRows
from border_cli.core.types import State
from border_cli.run.manifest import Chunk, SavedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedRows:
    """Rows to write, and the chunks that hold those before them."""

    frozen: FrozenRows
    oldest: int  # number of the oldest row that the replay buffer holds
    capacity: int
    row_nbytes: int
    before: tuple[Chunk, ...]

    def saved(self, new: Sequence[Chunk]) -> SavedRows:
        """What a manifest says of them once the `new` chunks are written."""
        chunks = tuple(each for each in (*self.before, *new) if each.end > self.oldest)
        return SavedRows(
            first=self.oldest, end=self.frozen.end, capacity=self.capacity, chunks=chunks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """All of a checkpoint; nothing in it is written again but by whoever has it now."""

    counters: Mapping[str, float]
    agent: Mapping[str, Any]
    run: State
    candidate: Mapping[str, Any] | None
    rows: HandedRows | None
