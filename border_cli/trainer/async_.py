"""Actors sample while the learner learns."""

from __future__ import annotations

from border_cli.trainer.base import LOOK_UP_S, Trainer


class AsyncTrainer(Trainer):
    """Takes in what has arrived before each step, and waits only when the pace asks for more."""

    def ingest(self, *, wait: bool) -> None:
        self._take(LOOK_UP_S if wait else 0.0)
