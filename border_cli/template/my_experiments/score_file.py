"""A recorder: the scores of a run as a table for spreadsheets."""

import csv
from collections.abc import Mapping
from typing import IO, Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State

from my_experiments.config import ScoreFileConfig


class ScoreFile(Recorder):
    """Writes <run>/scores.csv; only the learner's thread calls it."""

    def __init__(self, config: ScoreFileConfig, *, info: RunInfo, console: Any = None) -> None:
        del console  # the terminal, for recorders that show something
        self._metrics = config.metrics
        self._path = info.run_dir / "scores.csv"
        self._size = 0  # bytes of the file that belong to the run
        self._file: IO[str] | None = None

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        if not any(name in metrics for name in self._metrics):
            return
        file = self._file or self._open()
        values = [metrics.get(name, "") for name in self._metrics]
        csv.writer(file).writerow([step.opt_steps, step.env_steps, f"{step.time_s:.3f}", *values])
        file.flush()
        self._size = file.tell()

    def position(self) -> State:
        """What a checkpoint keeps, so that a resumed run repeats no line."""
        return {"size": self._size}

    def rewind(self, position: Mapping[str, Any]) -> None:
        self._size = int(position["size"])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[str]:
        """The file without the lines of an attempt that is made again."""
        self._file = self._path.open("a", encoding="utf-8", newline="")
        self._file.truncate(self._size)
        if self._size == 0:
            names = ["opt_steps", "env_steps", "time_s", *self._metrics]
            csv.writer(self._file).writerow(names)
        return self._file
