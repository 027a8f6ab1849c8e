"""The slot with the newest weights, for the actors of this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from border_cli.core.types import Form, Snapshot

ArrayForms = Mapping[str, Form]  # name -> type and shape of an array of every snapshot


def forms_of(snapshot: Snapshot) -> dict[str, Form]:
    """Type and shape of each array, which every later snapshot must have."""
    return {name: (array.dtype, array.shape) for name, array in snapshot.arrays.items()}


class WeightSource(Protocol):
    """Where an actor looks for newer weights."""

    def newer_than(self, version: int) -> tuple[int, Snapshot] | None:
        """The newest version and its snapshot, or None where `version` is the newest."""


class WeightSlot:
    """The newest snapshot and its version; the learner writes, actors read, without waiting.

    One reference to a tuple is replaced at a time, which is atomic in Python, and a snapshot never
    changes: a reader has either the old pair or the new one.
    """

    def __init__(self) -> None:
        self._newest: tuple[int, Snapshot | None] = (0, None)

    def publish(self, snapshot: Snapshot) -> None:
        """Makes it the newest."""
        self._newest = (self._newest[0] + 1, snapshot)

    def newer_than(self, version: int) -> tuple[int, Snapshot] | None:
        """The newest version and its snapshot, or None where `version` is the newest."""
        newest, snapshot = self._newest
        if newest == version or snapshot is None:
            return None
        return newest, snapshot
