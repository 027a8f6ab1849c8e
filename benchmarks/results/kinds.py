"""What a row of the table can be: a run of ours, a recording of one, or a peer of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a row must reach; every part that is given must hold.

    The best model counts, the last one of a row that learns from data alone.
    """

    mean: float | None = None  # over the seeds
    every_seed: float | None = None
    success: float | None = None  # share of episodes with `is_success`, mean over the seeds
    above: str | None = None  # a row whose mean must be surpassed
    near: str | None = None  # a recording whose policy must be reached, less 5 %
    not_below: str | None = None  # a peer, less twice the standard error of the difference


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One line of the table; there is one object of each, and it equals itself alone."""

    name: str
    seeds: int = 1

    @property
    def needs(self) -> str | None:
        """The row whose first seed must be there before, with what it left on the disk."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Row):
    """`border-train` as a user types it, and `border-eval` on what it left."""

    typed: tuple[str, ...]
    bar: Bar = Bar()
    published: str = ""  # the figure of the RL Zoo
    recording: str | None = None  # what it learns from, offline

    @property
    def needs(self) -> str | None:
        return self.recording


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording(Row):
    """`border-record`: a data set of what the models of a run do."""

    run: str
    dataset: str
    typed: tuple[str, ...]

    @property
    def needs(self) -> str | None:
        return self.run


@dataclass(frozen=True, kw_only=True, eq=False)
class Peer(Row):
    """Stable-Baselines3 on the budget and evaluations of our row, with the RL Zoo's settings, or
    with ours where there are none."""

    of: str
    algorithm: str
    settings: Mapping[str, Any] | None = None


class Cell(NamedTuple):
    """One seed of one row."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.name}/{self.seed}"
