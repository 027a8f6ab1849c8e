"""Statistics over seeds, and verdicts on whether rows reach their bars."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.results.cells import Content
from benchmarks.results.kinds import Bar

Finished = Mapping[str, Mapping[int, Content]]  # cells by row and seed
DRAWS = 20_000  # resamples of a bootstrap
CLOSE = 0.05  # fraction below the recorded policy that still counts as near


class Spread(NamedTuple):
    """Statistics of one number per seed; `std` is the sample standard deviation."""

    mean: float
    std: float
    worst: float
    seeds: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.seeds)


class Verdict(NamedTuple):
    """The requirement for a row, in words, and whether it is met; None if not yet known."""

    asked: str
    met: bool | None


def spread(values: Sequence[float]) -> Spread:
    """Summarizes at least one value."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, min(values), len(values))


def over_seeds(cells: Mapping[int, Content], model: str = "best") -> Spread | None:
    """Summarizes the models' mean returns in fresh episodes; None if no seed is finished."""
    means = [cell[model]["mean"] for cell in cells.values()]
    return spread(means) if means else None


def success_over_seeds(cells: Mapping[int, Content], model: str = "best") -> Spread | None:
    """Summarizes the success rates in fresh episodes; None if no cell has `is_success`."""
    rates = [cell[model]["success"] for cell in cells.values() if "success" in cell[model]]
    return spread(rates) if rates else None


class Difference(NamedTuple):
    """The mean difference between two rows in the percentage of a score range, with its 95 %
    interval."""

    mean: float
    low: float
    high: float


def difference(
    ours: Mapping[int, Content], theirs: Mapping[int, Content], score_range: tuple[float, float]
) -> Difference | None:
    """Compares the last models of two rows by a bootstrap over seeds (Efron 1979, percentiles);
    None if either has none."""
    rows = [np.array([cell["last"]["mean"] for cell in cells.values()]) for cells in (ours, theirs)]
    if not all(map(len, rows)):
        return None
    low, high = score_range
    rng = np.random.default_rng(0)
    draws = [row[rng.integers(len(row), size=(DRAWS, len(row)))].mean(1) for row in rows]
    scale = 100 / (high - low)
    interval = np.quantile(draws[0] - draws[1], [0.025, 0.975]) * scale
    return Difference((rows[0].mean() - rows[1].mean()) * scale, *interval)


def verdict(name: str, bar: Bar, seeds: int, finished: Finished, *, model: str = "best") -> Verdict:
    """Compares a row with its bar; `seeds` must be finished, and the scores of `model` count."""
    parts = _parts(name, bar, finished, model)
    if not parts:
        return Verdict("report", None)
    asked = " and ".join(part.asked for part in parts)
    met = [part.met for part in parts]
    if None in met or len(finished.get(name, {})) < seeds:
        return Verdict(asked, None)
    return Verdict(asked, all(met))


def _parts(name: str, bar: Bar, finished: Finished, model: str) -> list[Verdict]:
    scores = over_seeds(finished.get(name, {}), model)
    parts = []
    if bar.mean is not None:
        parts.append(_part(f"≥ {bar.mean:g}", scores and scores.mean, bar.mean))
    if bar.every_seed is not None:
        parts.append(
            _part(f"every seed ≥ {bar.every_seed:g}", scores and scores.worst, bar.every_seed)
        )
    if bar.success is not None:
        successes = success_over_seeds(finished.get(name, {}), model)
        parts.append(_part(f"success ≥ {bar.success:g}", successes and successes.mean, bar.success))
    if bar.above:
        other = over_seeds(finished.get(bar.above, {}), model)
        limit = other and math.nextafter(other.mean, math.inf)
        parts.append(_part(f"> {bar.above}", scores and scores.mean, limit))
    if bar.near:
        parts.append(_near(bar.near, scores, finished))
    if bar.not_below:
        other = over_seeds(finished.get(bar.not_below, {}), model)
        noise = 2 * math.hypot(scores.error, other.error) if scores and other else 0.0
        parts.append(_part("not below SB3", scores and scores.mean, other and other.mean - noise))
    return parts


def _near(recording: str, scores: Spread | None, finished: Finished) -> Verdict:
    cell = finished.get(recording, {}).get(0)
    if cell is None:
        return Verdict(f"within 5 % of {recording}", None)
    recorded: float = cell["recorded"]["mean"]
    limit = recorded - CLOSE * abs(recorded)
    return _part(f"within 5 % of {recording} ({recorded:.1f})", scores and scores.mean, limit)


def _part(asked: str, value: float | None, limit: float | None) -> Verdict:
    return Verdict(asked, None if value is None or limit is None else value >= limit)
