"""A recorder: the scores of a run as a table for spreadsheets."""

import csv
from collections.abc import Mapping
from typing import IO, Any

from border_cli.core.output import Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics, State

from my_experiments.config import ScoreFileConfig

COUNTERS = ["opt_steps", "env_steps", "time_s"]


class ScoreFile(Recorder):
    """Writes <run>/scores.csv, a line per evaluation; only the learner's thread calls it."""

    def __init__(self, config: ScoreFileConfig, *, info: RunInfo, console: Any = None) -> None:
        del console  # the terminal, for recorders that show something
        self._digits = config.digits
        self._path = info.run_dir / "scores.csv"
        self._file: IO[str] | None = None
        # Bytes of the file that belong to the run, and its columns; none before an evaluation.
        self._size, self._columns = 0, list[str]()

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        scores = {name: value for name, value in metrics.items() if name.startswith("eval/")}
        if not scores:
            return
        file = self._file or self._open(scores)
        counters = [step.opt_steps, step.env_steps, f"{step.time_s:.3f}"]
        known = (scores.get(name) for name in self._columns)
        rounded = ["" if each is None else f"{each:.{self._digits}f}" for each in known]
        csv.writer(file).writerow([*counters, *rounded])
        file.flush()
        self._size = file.tell()

    def position(self) -> State:
        """The length of the file, for a checkpoint: a resumed run repeats no line."""
        return {"size": self._size, "columns": self._columns}

    def rewind(self, position: Mapping[str, Any]) -> None:
        self._size, self._columns = int(position["size"]), list(position["columns"])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, scores: Metrics) -> IO[str]:
        """The file without the lines that a resumed run writes again."""
        self._file = self._path.open("a", encoding="utf-8", newline="")
        self._file.truncate(self._size)
        if not self._columns:
            self._columns = list(scores)
            csv.writer(self._file).writerow([*COUNTERS, *self._columns])
        return self._file
