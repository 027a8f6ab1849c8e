"""Actors and learner take turns in one thread."""

from __future__ import annotations

from border_cli.trainer.base import Trainer


class SyncTrainer(Trainer):
    """Each round steps every actor once, always with the newest weights, then makes the updates
    that the ratio allows (one where it is null)."""

    actors_in_turn = True

    def ingest(self, *, wait: bool) -> None:
        if wait:
            self._post_step.sync(warm_up=not self._warm)
            self._take(0.0)
            self._round_is_new = True

    def _ready(self) -> bool:
        if not super()._ready():
            return False
        return self.pacing.ratio is not None or self._round_is_new

    def _optimise(self) -> None:
        self._round_is_new = False
        super()._optimise()

    _round_is_new = False
