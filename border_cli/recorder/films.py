"""Films of evaluated episodes, as files in the run directory."""

from __future__ import annotations

from pathlib import Path

from border_cli.core.output import Recorder, RecordStep
from border_cli.core.types import Metrics
from border_cli.system.files import write_bytes

FOLDER = "videos"


def film_path(step: RecordStep) -> Path:
    """Of the film after an update, in the run directory."""
    return Path(FOLDER, f"{step.opt_steps:010d}.gif")


class FilmFiles(Recorder):
    """One file per film, named after its update: `videos/0000005000.gif`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Rows of metrics are for others."""

    def film(self, step: RecordStep, gif: bytes) -> None:
        path = self._run_dir / film_path(step)
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, gif)

    def close(self) -> None:
        """Nothing is open."""
