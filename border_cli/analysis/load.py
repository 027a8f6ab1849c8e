"""Runs read back from their directories: their settings, how they went and what they measured.

Nothing is written, and nothing is imported that the settings name.
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

POSITIONS = ("opt_steps", "env_steps", "time_s")  # of a row of metrics
NEAR = 0.9  # from here on a misspelt metric; two that are recorded apart are less alike
_NUMBER = re.compile(r"(\d+)")
# Of a run, without runs in it.
_OWN_FOLDER = re.compile("|".join(name for name, each in RUN.items() if not isinstance(each, str)))


class SavedRun:
    """One run directory. What is asked for is read then, and kept; nothing follows the run.

    `typed` are the settings of a job of a sweep that has not begun.
    """

    def __init__(self, folder: Path, typed: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._files = RunFolder(folder)
        self._typed = typed or {}

    def __repr__(self) -> str:
        return f"<SavedRun {self.folder}: {self.status}>"

    @property
    def facts(self) -> dict[str, Any]:
        """`run.json`, see `run.status.read_run`; empty where it is missing or damaged."""
        return self._files.facts

    @cached_property
    def status(self) -> str:
        """running, done, failed, interrupted or killed; lost where a run has begun and its
        `run.json` is missing or damaged, not started where none has begun."""
        return self._files.status

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by their dotted names, as saved; of a group the chosen option: `agent`.

        Raises `CheckpointError` where `run.json` has none.
        """
        if "settings" not in self.facts:
            raise CheckpointError(f"{self.folder / RUN_JSON} has no settings")
        return self.labels

    @property
    def labels(self) -> dict[str, Any]:
        """All that is known of the settings; empty where that is nothing."""
        found: dict[str, Any] = self.facts.get("settings", self._typed)
        return found

    @property
    def agent(self) -> str | None:
        """The option of `agent=` that was typed, such as `droq`."""
        return self.labels.get("agent")

    @property
    def env(self) -> str | None:
        """The option of `env=` that was typed, or the `env.id`."""
        chosen: str | None = self.labels.get("env")
        return self.labels.get("env.id") if chosen in (None, "gym") else chosen

    @property
    def seed(self) -> int | None:
        seed = self.labels.get("seed")
        return None if seed is None else int(seed)

    def metric(
        self, name: str, x: str = "env_steps"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The recorded values of one metric, [n], and where each was recorded, [n].

        `x` is env_steps, opt_steps or time_s. Both are empty where the run has not recorded it.
        Raises `ConfigError` for a name that is nearly that of a recorded one.
        """
        # imported late, like pandas below: a list of runs needs neither
        import numpy as np

        if x not in POSITIONS:
            raise ConfigError(unknown("position", x, POSITIONS))
        points = [(row.get(x), row[name]) for row in rows_with(self.folder / METRICS, name)]
        known = [point for point in points if None not in point]
        if not known:
            # Another actor's metric is no misspelt one
            words = [each for each in self.metrics() if _words(each) != _words(name)]
            if near := get_close_matches(name, words, 1, NEAR):
                raise ConfigError(f"{self.folder} has no metric {name!r}, did you mean {near[0]}?")
        at, values = np.array(known, dtype=np.float64).reshape(-1, 2).T
        return at, values

    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """All that was recorded, a column [rows] for each metric; NaN where a row has no value."""
        import numpy as np

        rows = read_metrics(self.folder / METRICS)
        names = dict.fromkeys(name for row in rows for name in row if name != "final")
        # numpy makes NaN of None
        return {name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in names}

    def frame(self) -> pd.DataFrame:
        """All that was recorded as a pandas DataFrame, a row for each row of metrics."""
        return _pandas().DataFrame(self.metrics())


class SavedRuns(list[SavedRun]):
    """Runs in the order of their directories."""

    def __repr__(self) -> str:
        return f"<Runs: {len(self)}>"

    def frame(self) -> pd.DataFrame:
        """A pandas DataFrame with a row for each run: folder, status, facts and settings."""
        rows = [
            {"folder": str(run.folder), "status": run.status, **_figures(run.facts), **run.settings}
            for run in self
        ]
        return _pandas().DataFrame(rows)


def load_runs(*paths: str | os.PathLike[str]) -> SavedRuns:
    """The runs in and below these directories, each once, ordered by name: 9 before 10.

    Raises `CheckpointError` for a path that does not exist or is no directory.
    """
    return SavedRuns(map(SavedRun, sorted(find_runs(map(Path, paths)), key=_in_order)))


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run directories in and below `paths`, which have saved settings, each once, in no
    particular order; links below them are not followed."""
    found: dict[str, Path] = {}  # by real path
    for path in paths:
        if not path.is_dir():
            what = f"{path} is not a directory" if path.exists() else f"no such directory: {path}"
            raise CheckpointError(what)
        for folder in runs_below(path):
            found.setdefault(os.path.realpath(folder), Path(folder))
    return list(found.values())


def runs_below(path: Path) -> Iterator[str]:
    """The run directories in and below a folder."""
    for folder, subfolders, _ in os.walk(path):
        own = SETTINGS.parent.name in subfolders and (Path(folder) / SETTINGS).is_file()
        if own:
            yield folder
        subfolders[:] = [
            name
            for name in subfolders
            if not name.startswith(".") and not (own and _OWN_FOLDER.fullmatch(name))
        ]


def _in_order(path: Path) -> list[int | str]:
    """Texts and numbers by turns."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(str(path))]


def _words(name: str) -> str:
    return _NUMBER.sub("", name)


def _figures(facts: dict[str, Any]) -> dict[str, Any]:
    """The entries of `run.json` that are one number or text."""
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
