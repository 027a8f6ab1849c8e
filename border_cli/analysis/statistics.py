"""Means, interquartile means and their 95 % intervals over the seeds of runs.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice". The
numbers are those of the authors' `rliable`; the intervals are percentiles of a stratified
bootstrap, which resamples the seeds of each environment.
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
TRIMMED = 0.25  # share cut off at each end

Scores: TypeAlias = Sequence[NDArray[np.float64]]  # one [S] per environment, S seeds
Indices: TypeAlias = Sequence[NDArray[np.intp]]  # one [R, S] per environment, R resamples
Statistic: TypeAlias = Callable[[Scores], NDArray[np.float64]]


class Estimate(NamedTuple):
    """A value and its 95 % interval; the bounds are NaN where there is only one seed."""

    mid: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@lru_cache
def t_quantile(degrees: int) -> float:
    """97.5 % of Student's t distribution lies below it.

    P(|T| < sqrt(degrees) tan(a)) is the share of the integral of cos(a)^(degrees - 1) up to a.
    """
    angle = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(angle) ** (degrees - 1)
    within = np.append(0.0, np.cumsum(density[1:] + density[:-1]))
    return math.sqrt(degrees) * math.tan(np.interp(0.95 * within[-1], within, angle))


def mean_over_seeds(scores: NDArray[np.float64]) -> Estimate:
    """The mean over the first axis, with the interval of Student's t."""
    seeds = len(scores)
    mid = scores.mean(axis=0)
    if seeds == 1:
        return Estimate(mid, mid * np.nan, mid * np.nan)
    half = t_quantile(seeds - 1) * scores.std(axis=0, ddof=1) / math.sqrt(seeds)
    return Estimate(mid, mid - half, mid + half)


def iqm_over_seeds(scores: NDArray[np.float64], rng: np.random.Generator) -> Estimate:
    """The interquartile mean over the first axis, with a bootstrap interval; [S] or [S, T]."""
    [index] = resampled([len(scores)], rng)
    points = scores.reshape(len(scores), -1).T  # [T, S]
    found = [bootstrap(iqm, [point], [index]) for point in points]  # small arrays: in the cache
    return Estimate(*(np.reshape(each, scores.shape[1:]) for each in zip(*found, strict=True)))


def resampled(seeds: Iterable[int], rng: np.random.Generator) -> Indices:
    """For each environment, which of its seeds are drawn, with replacement."""
    return [rng.integers(each, size=(RESAMPLES, each)) for each in seeds]


def bootstrap(statistic: Statistic, scores: Scores, indices: Indices) -> Estimate:
    """The statistic of the scores, with the interval of its values over the resamples."""
    mid = statistic(scores)
    if all(len(each) == 1 for each in scores):
        return Estimate(mid, mid * np.nan, mid * np.nan)
    drawn = [each[index] for each, index in zip(scores, indices, strict=True)]  # each [R, S]
    low, high = np.percentile(statistic(drawn), INTERVAL, axis=0)
    return Estimate(mid, low, high)


def mean(scores: Scores) -> NDArray[np.float64]:
    """The mean over environments of the mean over seeds."""
    return np.asarray(np.mean([each.mean(axis=-1) for each in scores], axis=0))


def iqm(scores: Scores) -> NDArray[np.float64]:
    """The mean of all runs without the lowest and the highest quarter."""
    every = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    runs = every.shape[-1]
    cut = int(TRIMMED * runs)
    return np.asarray(every[..., cut : runs - cut].mean(axis=-1))


def profile(thresholds: NDArray[np.float64]) -> Statistic:
    """The share of all runs that score above each threshold."""

    def shares(scores: Scores) -> NDArray[np.float64]:
        every = np.concatenate(scores, axis=-1)  # [R, N] or [N]
        return np.stack([(every > each).mean(axis=-1) for each in thresholds], axis=-1)

    return shares


def improvement(ours: Scores, theirs: Scores) -> NDArray[np.float64]:
    """P(a run of ours beats one of theirs), a tie counting half; the mean over environments."""
    beats = [
        0.5 + np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1)) / 2
        for x, y in zip(ours, theirs, strict=True)
    ]
    return np.asarray(np.mean(beats, axis=0))


def improvement_estimate(ours: Scores, theirs: Scores, rng: np.random.Generator) -> Estimate:
    """`improvement` with its interval; both sides are resampled independently."""
    both = [*ours, *theirs]
    return bootstrap(
        lambda scores: improvement(scores[: len(ours)], scores[len(ours) :]),
        both,
        resampled(map(len, both), rng),
    )
