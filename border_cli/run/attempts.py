"""What an attempt left that cannot be gone on from."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from border_cli.core.files import SETTINGS
from border_cli.run.files import EVENT_FILE, files_in

log = logging.getLogger(__name__)

LEFTOVERS = (
    *("run.json", "metrics.jsonl", "superseded.jsonl", "tensorboard", "checkpoints", "best"),
    *("not_finite.npz", str(SETTINGS)),
)


def set_aside(run_dir: Path) -> None:
    """Moves what an unfinished attempt left into `attempt-N`: nothing that was saved is lost."""
    events = sorted(each for each in files_in(run_dir) if re.fullmatch(EVENT_FILE, each))
    left = [run_dir / each for each in (*LEFTOVERS, *events) if os.path.lexists(run_dir / each)]
    if not left:
        return
    number = 1
    while os.path.lexists(folder := run_dir / f"attempt-{number}"):
        number += 1
    folder.mkdir()
    for path in left:
        path.rename(folder / path.name)
    log.info("moved an unfinished attempt to %s; the run starts over", folder)
