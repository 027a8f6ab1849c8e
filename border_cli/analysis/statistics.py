"""Means, interquartile means and their 95 % intervals over seeds.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice". The
results agree with the authors' library `rliable`. The interval of a mean over seeds is Student's t;
all others are percentiles of a stratified bootstrap, which resamples each environment separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)  # percentiles
TRIMMED = 0.25  # fraction trimmed at each end

Scores: TypeAlias = Sequence[NDArray[np.float64]]  # [S] per environment, S seeds
Indices: TypeAlias = Sequence[NDArray[np.intp]]  # [R, S] per environment, R resamples
Statistic: TypeAlias = Callable[[Scores], NDArray[np.float64]]


class Estimate(NamedTuple):
    """A value and its 95 % interval; the bounds are NaN if there is only one seed."""

    mid: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@lru_cache
def t_quantile(degrees: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution. P(|T| < sqrt(degrees) tan(a)) is the
    integral of cos^(degrees - 1) from 0 to a, divided by the integral from 0 to pi/2."""
    angle = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(angle) ** (degrees - 1)
    cumulative = np.append(0.0, np.cumsum(density[1:] + density[:-1]))
    return math.sqrt(degrees) * math.tan(np.interp(0.95 * cumulative[-1], cumulative, angle))


def mean_over_seeds(scores: NDArray[np.float64]) -> Estimate:
    """Returns the mean over the first axis, with Student's t interval."""
    seeds = len(scores)
    mid = scores.mean(axis=0)
    if seeds == 1:
        return Estimate(mid, mid * np.nan, mid * np.nan)
    half_width = t_quantile(seeds - 1) * scores.std(axis=0, ddof=1) / math.sqrt(seeds)
    return Estimate(mid, mid - half_width, mid + half_width)


def iqm_over_seeds(scores: NDArray[np.float64], rng: np.random.Generator) -> Estimate:
    """Returns the interquartile mean of `scores` [S] or [S, T] over seeds, with a bootstrap
    interval."""
    [index] = resampled([len(scores)], rng)
    points = scores.reshape(len(scores), -1).T  # [T, S]
    # One point at a time: small arrays fit into the cache
    estimates = [bootstrap(iqm, [point], [index]) for point in points]
    return Estimate(*(np.reshape(part, scores.shape[1:]) for part in zip(*estimates, strict=True)))


def resampled(seeds: Iterable[int], rng: np.random.Generator) -> Indices:
    """Draws seed indices with replacement, for each environment separately."""
    return [rng.integers(num, size=(RESAMPLES, num)) for num in seeds]


def bootstrap(statistic: Statistic, scores: Scores, indices: Indices) -> Estimate:
    """Computes a statistic of the scores, with a percentile interval over the resamples."""
    mid = statistic(scores)
    if all(len(env_scores) == 1 for env_scores in scores):
        return Estimate(mid, mid * np.nan, mid * np.nan)
    drawn = [env_scores[index] for env_scores, index in zip(scores, indices, strict=True)]  # [R, S]
    low, high = np.percentile(statistic(drawn), INTERVAL, axis=0)
    return Estimate(mid, low, high)


def mean(scores: Scores) -> NDArray[np.float64]:
    """Returns the mean over environments of the mean over seeds."""
    return np.asarray(np.mean([env_scores.mean(axis=-1) for env_scores in scores], axis=0))


def iqm(scores: Scores) -> NDArray[np.float64]:
    """Returns the mean of all runs without the lowest and highest quarter."""
    ordered = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    runs = ordered.shape[-1]
    cut = int(TRIMMED * runs)
    return np.asarray(ordered[..., cut : runs - cut].mean(axis=-1))


def profile(thresholds: NDArray[np.float64]) -> Statistic:
    """Returns a statistic: the fraction of runs that score above each threshold."""

    def fractions(scores: Scores) -> NDArray[np.float64]:
        all_scores = np.concatenate(scores, axis=-1)  # [R, N] or [N]
        return np.stack([(all_scores > value).mean(axis=-1) for value in thresholds], axis=-1)

    return fractions


def improvement(ours: Scores, theirs: Scores) -> NDArray[np.float64]:
    """Returns P(a run of `ours` beats a run of `theirs`), averaged over environments. A tie counts
    half."""
    beats = [
        0.5 + np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1)) / 2
        for x, y in zip(ours, theirs, strict=True)
    ]
    return np.asarray(np.mean(beats, axis=0))


def improvement_estimate(ours: Scores, theirs: Scores, rng: np.random.Generator) -> Estimate:
    """Returns `improvement` with its interval; both groups are resampled independently."""
    both = [*ours, *theirs]
    return bootstrap(
        lambda scores: improvement(scores[: len(ours)], scores[len(ours) :]),
        both,
        resampled(map(len, both), rng),
    )
