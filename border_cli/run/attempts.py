"""What an attempt left that cannot be gone on from."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger(__name__)

LEFTOVERS = (
    *("run.json", "metrics.jsonl", "superseded.jsonl", "tensorboard", "checkpoints", "best"),
    *("not_finite.npz", ".hydra/resolved.yaml"),
)


def set_aside(run_dir: Path) -> None:
    """Moves what an unfinished attempt left into `attempt-N`: nothing that was saved is lost."""
    left = [run_dir / name for name in LEFTOVERS if (run_dir / name).exists()]
    if not left:
        return
    number = 1 + sum(1 for _ in run_dir.glob("attempt-*"))
    folder = run_dir / f"attempt-{number}"
    folder.mkdir()
    for path in left:
        path.rename(folder / path.name)
    log.info("an unfinished attempt was moved to %s; the run starts again", folder)
