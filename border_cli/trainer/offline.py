"""Learning from a data set alone."""

from __future__ import annotations

from border_cli.trainer.base import Trainer


class OfflineTrainer(Trainer):
    """Updates from the first moment on: all rows there will ever be are in the replay buffer."""

    def ingest(self, *, wait: bool) -> None:
        """Nothing arrives, and nobody waits for it."""

    def _ready(self) -> bool:
        return True
