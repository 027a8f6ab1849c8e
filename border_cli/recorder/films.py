"""Films of evaluated episodes, as files in the run directory."""

from __future__ import annotations

from pathlib import Path

from border_cli.core.output import Recorder, RecordStep
from border_cli.core.types import Metrics
from border_cli.system.files import write_bytes

FOLDER = "videos"


class FilmFiles(Recorder):
    """One file per film, named after its update: `videos/0000005000.gif`."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Rows of metrics are for others."""

    def film(self, step: RecordStep, gif: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        write_bytes(self._folder / f"{step.opt_steps:010d}.gif", gif)

    def close(self) -> None:
        """Nothing is open."""
