"""Which rows a ring holds and where: all of it but the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.types import State


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """The numbers of a ring, and the form of its rows."""

    rows_pushed: int
    position: int  # where the next row goes
    size: int  # rows stored
    capacity: int
    columns: dict[str, str]  # name: type and shape of a row

    def state_dict(self) -> State:
        """For a checkpoint."""
        return asdict(self)

    def require(self, *, capacity: int, columns: dict[str, str]) -> None:
        """Raises `CheckpointError` naming what is different."""
        if self.capacity != capacity:
            raise CheckpointError(
                f"the saved replay buffer has capacity {self.capacity}, expected {capacity}"
            )
        for name in [*self.columns, *columns]:
            saved, ours = self.columns.get(name, "missing"), columns.get(name, "missing")
            if saved != ours:
                raise CheckpointError(
                    f"column {name} of the saved replay buffer is {saved}, expected {ours}"
                )


def ring_state(state: Mapping[str, Any]) -> RingState:
    """Out of a checkpoint; raises `CheckpointError` where it is none."""
    names = ("rows_pushed", "position", "size", "capacity")
    numbers = {name: whole_number(state, name) for name in names}
    columns = state.get("columns")
    if not isinstance(columns, dict):
        raise CheckpointError("the saved replay buffer does not list its columns")
    ring = RingState(columns={str(name): str(form) for name, form in columns.items()}, **numbers)
    full = ring.size == ring.capacity
    if ring.size > min(ring.capacity, ring.rows_pushed) or (
        ring.position >= ring.capacity if full else ring.position != ring.size
    ):
        raise CheckpointError(
            f"the saved replay buffer is inconsistent: it holds {ring.size} of {ring.rows_pushed} "
            f"rows, and the next goes to slot {ring.position} of {ring.capacity}"
        )
    return ring


def whole_number(state: Mapping[str, Any], name: str) -> int:
    """A number of at least 0 of a saved replay buffer."""
    value = state.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"{name} of the saved replay buffer must be a count, got {value!r}")
    return value
