"""Loads runs from their directories: settings, status, results and metrics.

Nothing is written, and no class or module named in the settings is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.errors import CheckpointError, ConfigError, MissingPackage
from border_cli.recorder.read import read_metrics, rows_with
from border_cli.run.layout import RUN
from border_cli.run.run_folder import RunFolder
from border_cli.run.status import RUN_JSON
from border_cli.system.files import METRICS, SETTINGS
from border_cli.words import unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

POSITIONS = ("opt_steps", "env_steps", "time_s")  # position of a row of metrics in the run
NEAR = 0.9  # minimum similarity for a suggestion; different metrics are less similar
_NUMBER = re.compile(r"(\d+)")
# Subdirectories that belong to a run and cannot contain other runs
_OWN_FOLDER = re.compile("|".join(name for name, kind in RUN.items() if not isinstance(kind, str)))


class SavedRun:
    """A run directory. `run.json` is read on first access and cached; metrics are read every time.

    `typed` contains the settings of a sweep job that has not started.
    """

    def __init__(self, folder: Path, typed: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._files = RunFolder(folder)
        self._typed = typed or {}

    def __repr__(self) -> str:
        return f"<SavedRun {self.folder}: {self.status}>"

    @property
    def facts(self) -> dict[str, Any]:
        """The content of `run.json` (see `run.status.read_run`); empty if missing or corrupt."""
        return self._files.facts

    @cached_property
    def status(self) -> str:
        """One of running, done, failed, interrupted, skipped (a job of a sweep) and killed; lost if
        the run has started but its `run.json` is missing or corrupt; not started otherwise."""
        return self._files.status

    @property
    def settings(self) -> dict[str, Any]:
        """All saved settings by dotted name; a group name, such as `agent`, has its chosen option.

        Raises `CheckpointError` if `run.json` has no settings.
        """
        if "settings" not in self.facts:
            raise CheckpointError(f"{self.folder / RUN_JSON} has no settings")
        return self.labels

    @property
    def labels(self) -> dict[str, Any]:
        """The settings as far as they are known; may be empty."""
        labels: dict[str, Any] = self.facts.get("settings", self._typed)
        return labels

    @property
    def agent(self) -> str | None:
        """The chosen option of `agent`, such as `droq`."""
        return self.labels.get("agent")

    @property
    def env(self) -> str | None:
        """The chosen option of `env`, or `env.id` for environments without a file."""
        option: str | None = self.labels.get("env")
        return self.labels.get("env.id") if option in (None, "gym") else option

    @property
    def seed(self) -> int | None:
        seed = self.labels.get("seed")
        return None if seed is None else int(seed)

    def metric(
        self, name: str, x: str = "env_steps"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns positions and values of a metric, [n] each; empty if it was not recorded.

        `x` is env_steps, opt_steps or time_s. Raises `ConfigError` for a name that looks like a
        misspelt metric.
        """
        # imported late, like pandas below: listing runs requires neither
        import numpy as np

        if x not in POSITIONS:
            raise ConfigError(unknown("position", x, POSITIONS))
        points = [(row.get(x), row[name]) for row in rows_with(self.folder / METRICS, name)]
        complete = [point for point in points if None not in point]
        if not complete:
            # A name that differs only in the actor's number is not a misspelling
            candidates = [metric for metric in self.metrics() if _words(metric) != _words(name)]
            if matches := get_close_matches(name, candidates, 1, NEAR):
                raise ConfigError(
                    f"{self.folder} has no metric {name!r}, did you mean {matches[0]}?"
                )
        positions, values = np.array(complete, dtype=np.float64).reshape(-1, 2).T
        return positions, values

    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """Returns all metrics as columns, [rows] each; NaN for rows without a value."""
        import numpy as np

        rows = read_metrics(self.folder / METRICS)
        names = dict.fromkeys(name for row in rows for name in row if name != "final")
        # numpy converts None to NaN
        return {name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in names}

    def frame(self) -> pd.DataFrame:
        """Returns all metrics as a pandas DataFrame, with a row per row of metrics."""
        return _pandas().DataFrame(self.metrics())


class SavedRuns(list[SavedRun]):
    """A list of runs, ordered by directory."""

    def __repr__(self) -> str:
        return f"<Runs: {len(self)}>"

    def frame(self) -> pd.DataFrame:
        """Returns a pandas DataFrame with a row per run: folder, status, facts and settings."""
        rows = [
            {"folder": str(run.folder), "status": run.status, **_figures(run.facts), **run.settings}
            for run in self
        ]
        return _pandas().DataFrame(rows)


def load_runs(*paths: str | os.PathLike[str]) -> SavedRuns:
    """Loads all runs in and below `paths`, without duplicates, in natural order (9 before 10).

    Raises `CheckpointError` for a path that does not exist or is not a directory.
    """
    return SavedRuns(map(SavedRun, sorted(find_runs(map(Path, paths)), key=_natural_key)))


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Finds the run directories in and below `paths`, that is those with saved settings. The result
    is unordered and has no duplicates. Links below `paths` are not followed."""
    run_dirs: dict[str, Path] = {}  # real path -> run directory
    for path in paths:
        if not path.is_dir():
            problem = (
                f"{path} is not a directory" if path.exists() else f"no such directory: {path}"
            )
            raise CheckpointError(problem)
        for folder in runs_below(path):
            run_dirs.setdefault(os.path.realpath(folder), Path(folder))
    return list(run_dirs.values())


def runs_below(path: Path) -> Iterator[str]:
    """Yields the run directories in and below a folder."""
    for folder, subfolders, _ in os.walk(path):
        is_run = SETTINGS.parent.name in subfolders and (Path(folder) / SETTINGS).is_file()
        if is_run:
            yield folder
        subfolders[:] = [
            name
            for name in subfolders
            if not name.startswith(".") and not (is_run and _OWN_FOLDER.fullmatch(name))
        ]


def _natural_key(path: Path) -> list[int | str]:
    """Splits a path into alternating text and numbers, as a key for natural sorting."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(str(path))]


def _words(name: str) -> str:
    return _NUMBER.sub("", name)


def _figures(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the scalar entries of `run.json`."""
    return {
        name: value
        for name, value in facts.items()
        if value is None or isinstance(value, str | int | float)
    }


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage("a DataFrame", "pandas") from error
    return pandas
