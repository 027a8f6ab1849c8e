"""Writes films of evaluated episodes to the run directory."""

from __future__ import annotations

from pathlib import Path

from border_cli.core.output import Recorder, RecordStep
from border_cli.core.types import Metrics
from border_cli.system.files import write_bytes

FOLDER = "videos"


def film_path(step: RecordStep) -> Path:
    """Returns the path of the film recorded at `step`, relative to the run directory."""
    return Path(FOLDER, f"{step.opt_steps:010d}.gif")


class FilmFiles(Recorder):
    """Writes a file per film, named after the number of updates: `videos/0000005000.gif`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Ignores metrics; this recorder only writes films."""

    def film(self, step: RecordStep, gif: bytes) -> None:
        path = self._run_dir / film_path(step)
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, gif)

    def close(self) -> None:
        """Does nothing; no file stays open."""
