"""The transitions of a data set in a replay buffer: in front of those of actors, and they stay.

Ball, Smith, Kostrikov and Levine 2023, "Efficient online reinforcement learning with offline data",
Algorithm 1: half of each batch is of the data set, whatever its size (`share`).
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
    """Transitions of a data set, which are read once, when they are stored.

    A checkpoint names the data set, with a checksum, and holds none of its rows: they are read
    again.
    """

    id: str
    rows: Iterable[Transitions]
    steps: int  # rows at most
    checksum: object  # its text is that of all rows, once they were read
    grows: bool  # actors will add rows
    share: float | None  # of each batch; None: all rows are one set

    def store(self, ring: Ring) -> None:
        """Reads the rows into a ring that has space for them; raises ConfigError where there are
        none, or more than there should be."""
        try:
            ring.fix(self.rows)
        except ValueError as error:
            raise ConfigError(f"data set {self.id} does not match its metadata: {error}") from error
        if not ring.fixed:
            raise ConfigError(f"data set {self.id} contains no transitions")

    def count_of(self, batch_size: int) -> int:
        """How many rows of a batch are of the data set; only where it has a share."""
        assert self.share is not None
        return rows_of_share(self.share, batch_size)

    def state(self, ring: Ring) -> State:
        """What tells the stored rows from those of other data sets."""
        return {"id": self.id, "rows": ring.fixed, "checksum": str(self.checksum)}

    def require_same(self, saved: Mapping[str, object], ring: Ring) -> None:
        """Raises CheckpointError where the data set is another one than it was."""
        for name, now in self.state(ring).items():
            if saved[name] != now:
                raise CheckpointError(
                    f"data set {self.id} is not the one the run was trained on: {name} {now}, "
                    f"expected {saved[name]}"
                )
