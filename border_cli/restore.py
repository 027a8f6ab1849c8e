"""From the checkpoints in a run directory to a run that goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from border_cli.core.config import RunConfig
from border_cli.core.errors import CheckpointError
from border_cli.core.output import Resumption
from border_cli.core.words import counted
from border_cli.nn.saving import load_state
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.reading import Saved, best_score, read_checkpoint, resumable
from border_cli.trainer.config import OfflineConfig
from border_cli.trainer.trainer import Trainer

log = logging.getLogger(__name__)


class Found:
    """The checkpoints of a run directory, the newest first; each is read once, when it is its turn.

    `rows`: with the replay buffer, where it was saved. A checkpoint that is not whole is noted and
    left for the one before it. Raises CheckpointError where none is left.
    """

    newest: Saved  # whole, as far as can be told before its rows are read
    agent: dict[str, Any]  # the state of its agent

    def __init__(self, run_dir: Path, *, rows: bool) -> None:
        self.run_dir = run_dir
        self._rows = rows
        self._left = iter(resumable(run_dir))
        self._damaged: list[CheckpointError] = []
        self._read_next()

    def _read_next(self) -> None:
        for folder in self._left:
            try:
                self.newest = read_checkpoint(folder, rows=self._rows)
                self.agent = load_state(self.newest.agent)
            except CheckpointError as error:
                self._damaged.append(error)
            else:
                return
        raise _nothing(self.run_dir, self._damaged)

    def resume(self, trainer: Trainer) -> Saved:
        """Brings everything to where the newest whole checkpoint was taken; names the others."""
        while True:
            saved = self.newest
            try:
                trainer.resume(self._resumption(saved))
            except CheckpointError as error:
                self._damaged.append(error)
                self._read_next()
                continue
            for each in self._damaged:
                log.error("%s; resuming from the previous checkpoint", each)
            return saved

    def _resumption(self, saved: Saved) -> Resumption:
        return Resumption(
            counters=saved.counters,
            run=saved.run,
            agent=self.agent,
            load_rows=saved.load_rows if self._rows and saved.has_rows else None,
            candidate=load_state(saved.candidate) if saved.candidate else None,
        )


def restore(found: Found, trainer: Trainer, store: CheckpointStore) -> int:
    """Goes on from what was found; returns its opt steps."""
    saved = found.resume(trainer)
    store.resumed(saved)
    best = best_score(found.run_dir)
    if best is not None:  # it may be newer than the checkpoint
        trainer.scores.know_best(*best)
    elif trainer.scores.best_opt_steps is not None:
        log.warning(
            "the best model (score %g at update %d) is missing from %s or damaged; only a better "
            "one will replace it",
            trainer.scores.best, trainer.scores.best_opt_steps, found.run_dir,
        )  # fmt: skip
    log.info("resumed from %s", saved.folder)
    return saved.opt_steps


def restored_line(config: RunConfig, saved: Saved) -> str:
    """What comes back with a checkpoint, in a few words."""
    if isinstance(config.trainer, OfflineConfig):
        return "weights, optimiser, random generators; the data set is read again"
    rows = sum(each.end - each.first for each in saved.chunks)
    if not config.checkpoint.replay_buffer or not saved.has_rows:
        samples = config.trainer.warmup_period
        return f"no replay buffer, so {counted(samples, 'sample')} are collected first"
    rows = min(rows, config.replay_buffer.capacity)
    return f"weights, optimiser, replay buffer ({counted(rows, 'transition')}), unfinished episodes"


def _nothing(run_dir: Path, damaged: list[CheckpointError]) -> CheckpointError:
    if not damaged:
        return CheckpointError(f"{run_dir} has no checkpoint to resume from")
    listed = "".join(f"\n  {each}" for each in dict.fromkeys(map(str, damaged)))
    return CheckpointError(
        f"{run_dir} has no complete checkpoint to resume from:{listed}\n"
        "If only files in checkpoints/replay are damaged, checkpoint.replay_buffer=false resumes "
        "without them"
    )
