"""From the checkpoints in a run directory to a run that goes on."""

from __future__ import annotations

import logging

from border_cli.core.config import RunConfig
from border_cli.core.words import counted
from border_cli.launch.build import actor_manager_config
from border_cli.registry import ACTOR_MANAGERS
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.checkpoint_files import Saved
from border_cli.run.finding import Resumable, best_score
from border_cli.trainer.config import OfflineConfig
from border_cli.trainer.trainer import Trainer

log = logging.getLogger(__name__)


def restore(found: Resumable, trainer: Trainer, store: CheckpointStore) -> int:
    """Goes on from what was found; returns its opt steps."""
    saved = found.into(trainer.resume)
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
    continued = ACTOR_MANAGERS.entry_of(actor_manager_config(config)).name == "serial"
    episodes = "unfinished episodes" if continued else "counters; actors begin new episodes"
    return f"weights, optimiser, replay buffer ({counted(rows, 'transition')}), {episodes}"
