"""Statistics over seeds, and whether a row has reached what it must."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.results.cells import Content
from benchmarks.results.kinds import Bar

Finished = Mapping[str, Mapping[int, Content]]  # cells by row and seed
CLOSE = 0.05  # how far below the recorded policy counts as near


class Spread(NamedTuple):
    """Of one number per seed; the deviation is that of a sample."""

    mean: float
    std: float
    worst: float
    seeds: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.seeds)


class Verdict(NamedTuple):
    """What is asked of a row, in words, and whether it is there; None where nobody knows yet."""

    asked: str
    met: bool | None


def spread(values: Sequence[float]) -> Spread:
    """At least one value."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, min(values), len(values))


def over_seeds(cells: Mapping[int, Content], model: str = "best") -> Spread | None:
    """Of the models' means in fresh episodes; None where no seed is finished."""
    means = [cell[model]["mean"] for cell in cells.values()]
    return spread(means) if means else None


def success_over_seeds(cells: Mapping[int, Content], model: str = "best") -> Spread | None:
    """Of the shares of fresh episodes with `is_success`; None where nothing tells."""
    shares = [cell[model]["success"] for cell in cells.values() if "success" in cell[model]]
    return spread(shares) if shares else None


def verdict(name: str, bar: Bar, seeds: int, finished: Finished, *, model: str = "best") -> Verdict:
    """Holds a row against its bar. `seeds` is how many it must have, `model` which counts."""
    parts = _parts(name, bar, finished, model)
    if not parts:
        return Verdict("report", None)
    asked = " and ".join(part.asked for part in parts)
    met = [part.met for part in parts]
    if None in met or len(finished.get(name, {})) < seeds:
        return Verdict(asked, None)
    return Verdict(asked, all(met))


def _parts(name: str, bar: Bar, finished: Finished, model: str) -> list[Verdict]:
    own = over_seeds(finished.get(name, {}), model)
    parts = []
    if bar.mean is not None:
        parts.append(_part(f"≥ {bar.mean:g}", own and own.mean, bar.mean))
    if bar.every_seed is not None:
        parts.append(_part(f"every seed ≥ {bar.every_seed:g}", own and own.worst, bar.every_seed))
    if bar.success is not None:
        found = success_over_seeds(finished.get(name, {}), model)
        parts.append(_part(f"success ≥ {bar.success:g}", found and found.mean, bar.success))
    if bar.above:
        other = over_seeds(finished.get(bar.above, {}), model)
        limit = other and math.nextafter(other.mean, math.inf)
        parts.append(_part(f"> {bar.above}", own and own.mean, limit))
    if bar.near:
        parts.append(_near(bar.near, own, finished))
    if bar.not_below:
        other = over_seeds(finished.get(bar.not_below, {}), model)
        noise = 2 * math.hypot(own.error, other.error) if own and other else 0.0
        parts.append(_part("not below SB3", own and own.mean, other and other.mean - noise))
    return parts


def _near(recording: str, own: Spread | None, finished: Finished) -> Verdict:
    cell = finished.get(recording, {}).get(0)
    if cell is None:
        return Verdict(f"within 5 % of {recording}", None)
    recorded: float = cell["recorded"]["mean"]
    limit = recorded - CLOSE * abs(recorded)
    return _part(f"within 5 % of {recording} ({recorded:.1f})", own and own.mean, limit)


def _part(asked: str, value: float | None, limit: float | None) -> Verdict:
    return Verdict(asked, None if value is None or limit is None else value >= limit)
