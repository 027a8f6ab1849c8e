"""The kinds of rows: a run of ours, a recording of a run, or a peer of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The scores that a row must reach; every part that is given must hold.

    The best model counts or, for a row that learns from data alone, the last model.
    """

    mean: float | None = None  # minimum of the mean over the seeds
    every_seed: float | None = None  # minimum of every seed
    success: float | None = None  # minimum success rate, mean over the seeds
    above: str | None = None  # a row whose mean must be exceeded
    near: str | None = None  # a recording whose policy must be reached within 5 %
    not_below: str | None = None  # a peer; two standard errors of the difference are tolerated


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One line of the table. Rows are compared by identity."""

    name: str
    seeds: int = 1

    @property
    def needs(self) -> str | None:
        """The row whose first seed must be finished before, with its files still on disk."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Row):
    """`border-train` as a user types it, then `border-eval` on its run directory."""

    typed: tuple[str, ...]
    bar: Bar = Bar()
    published: str = ""  # score of the RL Zoo
    recording: str | None = None  # row of the data set, if offline
    # Score of a random and of a good policy. If given, the row is judged by the difference between
    # its last models and those of its peer.
    score_range: tuple[float, float] | None = None

    @property
    def needs(self) -> str | None:
        return self.recording


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording(Row):
    """`border-record`: a data set of episodes collected with a run's models."""

    run: str
    dataset: str
    typed: tuple[str, ...]

    @property
    def needs(self) -> str | None:
        return self.run


@dataclass(frozen=True, kw_only=True, eq=False)
class Peer(Row):
    """Stable-Baselines3 with the budget and evaluations of our row, and with the RL Zoo's settings
    or, if there are none, ours."""

    of: str
    algorithm: str
    settings: Mapping[str, Any] | None = None


class Cell(NamedTuple):
    """One seed of one row."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.name}/{self.seed}"
