"""The slot from which actors in the learner's process read the newest weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from border_cli.core.types import Form, Snapshot

ArrayForms = Mapping[str, Form]  # dtype and shape of each array in a snapshot, by name


def forms_of(snapshot: Snapshot) -> dict[str, Form]:
    """Returns the dtype and shape of each array, which all later snapshots must share."""
    return {name: (array.dtype, array.shape) for name, array in snapshot.arrays.items()}


class WeightSource(Protocol):
    """A source of newer weights for an actor."""

    def newer_than(self, version: int) -> tuple[int, Snapshot] | None:
        """Returns the newest version and its snapshot, or None if `version` is the newest."""


class WeightSlot:
    """The newest snapshot and its version. The learner writes and actors read without blocking.

    Publishing replaces one reference to a tuple, which is atomic in Python, and snapshots never
    change. A reader therefore gets either the old pair or the new one.
    """

    def __init__(self) -> None:
        self._newest: tuple[int, Snapshot | None] = (0, None)

    def publish(self, snapshot: Snapshot) -> None:
        """Makes this snapshot the newest."""
        self._newest = (self._newest[0] + 1, snapshot)

    def newer_than(self, version: int) -> tuple[int, Snapshot] | None:
        """Returns the newest version and its snapshot, or None if `version` is the newest."""
        newest, snapshot = self._newest
        if newest == version or snapshot is None:
            return None
        return newest, snapshot
