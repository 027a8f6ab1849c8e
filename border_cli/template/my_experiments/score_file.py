"""A recorder that writes the scores of a run as a table for spreadsheets."""

import csv
from collections.abc import Mapping
from typing import IO, Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State

from my_experiments.config import ScoreFileConfig

COUNTERS = ["opt_steps", "env_steps", "time_s"]


class ScoreFile(Recorder):
    """Writes one line per evaluation to <run>/scores.csv. Called by the learner thread only."""

    def __init__(self, config: ScoreFileConfig, *, info: RunInfo, console: Any = None) -> None:
        del console  # the terminal, for recorders that print
        self._digits = config.digits
        self._path = info.run_dir / "scores.csv"
        self._file: IO[str] | None = None
        # Size of the file in bytes and its columns. The first evaluation determines the columns.
        self._size, self._columns = 0, list[str]()

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        scores = {name: value for name, value in metrics.items() if name.startswith("eval/")}
        if not scores:
            return
        file = self._file or self._open(scores)
        counters = [step.opt_steps, step.env_steps, f"{step.time_s:.3f}"]
        values = (scores.get(name) for name in self._columns)
        rounded = ["" if score is None else f"{score:.{self._digits}f}" for score in values]
        csv.writer(file).writerow([*counters, *rounded])
        file.flush()
        self._size = file.tell()

    def position(self) -> State:
        """Returns the size of the file for a checkpoint, so that a resume duplicates no line."""
        return {"size": self._size, "columns": self._columns}

    def rewind(self, position: Mapping[str, Any]) -> None:
        self._size, self._columns = int(position["size"]), list(position["columns"])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, scores: Metrics) -> IO[str]:
        """Opens the file and removes lines that a resumed run will write again."""
        self._file = self._path.open("a", encoding="utf-8", newline="")
        self._file.truncate(self._size)
        if not self._columns:
            self._columns = list(scores)
            csv.writer(self._file).writerow([*COUNTERS, *self._columns])
        return self._file
