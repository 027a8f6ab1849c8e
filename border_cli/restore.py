"""From the checkpoints in a run directory to a run that goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from border_cli.core.config import RunConfig
from border_cli.core.errors import CheckpointError
from border_cli.core.output import Resumption
from border_cli.nn.saving import load_state
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.reading import Saved, best_score, read_checkpoint, resumable
from border_cli.trainer.base import Trainer

log = logging.getLogger(__name__)


def newest_whole(run_dir: Path, *, rows: bool) -> Saved:
    """The checkpoint that a resume takes, as far as its small files tell; raises CheckpointError
    with what is wrong where there is none."""
    damaged: list[CheckpointError] = []
    for saved in _readable(run_dir, damaged, rows=rows):
        return saved
    raise _nothing(run_dir, damaged)


def restore(run_dir: Path, trainer: Trainer, store: CheckpointStore, *, rows: bool) -> int:
    """Brings everything to where the newest whole checkpoint was taken; returns its opt steps.

    A damaged one is named and left for the one before it. `rows`: with the replay buffer, where it
    was saved. Raises CheckpointError where none is whole.
    """
    damaged: list[CheckpointError] = []
    for saved in _readable(run_dir, damaged, rows=rows):
        try:
            trainer.resume(
                Resumption(
                    counters=saved.counters,
                    run=saved.run,
                    agent=load_state(saved.agent),
                    load_rows=saved.load_rows if rows and saved.has_rows else None,
                    candidate=load_state(saved.candidate) if saved.candidate else None,
                )
            )
        except CheckpointError as error:
            damaged.append(error)
            continue
        for each in damaged:
            log.error("%s; going on from the checkpoint before it", each)
        store.resumed(saved)
        best = best_score(run_dir)
        if best is not None:  # it may be newer than the checkpoint
            trainer.scores.know_best(*best)
        log.info("goes on from %s", saved.folder)
        return saved.opt_steps
    raise _nothing(run_dir, damaged)


def restored_line(config: RunConfig, saved: Saved) -> str:
    """What comes back with a checkpoint, in a few words."""
    rows = sum(each.end - each.first for each in saved.chunks)
    if not config.checkpoint.replay_buffer or not saved.has_rows:
        samples = config.trainer.warmup_period
        return f"without its replay buffer, so {samples:,} samples are made first"
    rows = min(rows, config.replay_buffer.capacity)
    return f"weights, optimiser, {rows:,} rows of the replay buffer, episodes under way"


def _readable(run_dir: Path, damaged: list[CheckpointError], *, rows: bool) -> Iterator[Saved]:
    """The checkpoints whose small files are whole, the newest first; notes the others."""
    for folder in resumable(run_dir):
        try:
            yield read_checkpoint(folder, rows=rows)
        except CheckpointError as error:
            damaged.append(error)


def _nothing(run_dir: Path, damaged: list[CheckpointError]) -> CheckpointError:
    if not damaged:
        return CheckpointError(f"{run_dir} holds no checkpoint to go on from")
    listed = "".join(f"\n  {each}" for each in damaged)
    return CheckpointError(
        f"{run_dir} holds no whole checkpoint to go on from:{listed}\n"
        "Where only files of checkpoints/replay are damaged, checkpoint.replay_buffer=false goes "
        "on without them"
    )
