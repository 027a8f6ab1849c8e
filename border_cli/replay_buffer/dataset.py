"""Transitions of a data set, stored before those of the actors and never overwritten.

Ball, Smith, Kostrikov and Levine 2023, "Efficient online reinforcement learning with offline data",
Algorithm 1: half of each batch comes from the data set, whatever its size (`share`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from border_cli.core.types import State, Transitions
from border_cli.errors import CheckpointError, ConfigError
from border_cli.replay_buffer.config import rows_of_share
from border_cli.replay_buffer.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRows:
    """Transitions of a data set, read once into the ring of a replay buffer.

    A checkpoint contains the id of the data set and a checksum, but none of its transitions: they
    are read again on resume.
    """

    id: str
    rows: Iterable[Transitions]
    steps: int  # maximum number of transitions
    checksum: object  # str(checksum) is valid once all transitions have been read
    grows: bool  # whether actors add transitions
    share: float | None  # fraction of each batch; None means that all transitions form a single set

    def store(self, ring: Ring) -> None:
        """Reads the transitions into a ring that has space for them; raises ConfigError if there
        are none, or more than `steps`."""
        try:
            ring.store_fixed(self.rows)
        except ValueError as error:
            raise ConfigError(f"data set {self.id} does not match its metadata: {error}") from error
        if not ring.fixed:
            raise ConfigError(f"data set {self.id} contains no transitions")

    def count_of(self, batch_size: int) -> int:
        """Returns how many transitions of a batch come from the data set; `share` must be set."""
        assert self.share is not None
        return rows_of_share(self.share, batch_size)

    def state(self, ring: Ring) -> State:
        """Returns the state that a checkpoint stores to identify the data set."""
        return {"id": self.id, "rows": ring.fixed, "checksum": str(self.checksum)}

    def require_same(self, saved: Mapping[str, object], ring: Ring) -> None:
        """Raises CheckpointError if the data set differs from the saved one."""
        for name, value in self.state(ring).items():
            if saved[name] != value:
                raise CheckpointError(
                    f"data set {self.id} is not the one the run was trained on: {name} {value}, "
                    f"expected {saved[name]}"
                )
