"""Takes measurements in turn, compares them and prints the rows of the table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from benchmarks.machine import Others, facts

Reading = Mapping[str, float]  # values of one measurement, by name
Readings = dict[str, list[Reading]]  # by row, one reading per repetition


def make_parser(description: str | None, *, repetitions: int = 5) -> argparse.ArgumentParser:
    """Returns an argument parser with the option that all parts share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=repetitions,
        help="repetitions per row (default: %(default)s)",
    )
    return parser


def take_turns(contenders: Mapping[str, Callable[[int], Reading]], repetitions: int) -> Readings:
    """Measures each contender once per repetition, with the repetition's number as its seed.

    Every other repetition runs in reverse order, so that drift favours no contender.
    """
    readings: Readings = {name: [] for name in contenders}
    for repetition in range(repetitions):
        names = list(contenders) if repetition % 2 == 0 else list(contenders)[::-1]
        for name in names:
            say(f"repetition {repetition + 1} of {repetitions}: {name}")
            with Others() as others:
                reading = contenders[name](repetition)
            readings[name].append({**reading, "other_cores": others.cores})
    return readings


def contenders_of(
    rows: Iterable[str],
    measure: Callable[[str, int], Reading],
    skip_reason: Callable[[str], str | None],
) -> dict[str, Callable[[int], Reading]]:
    """Returns the rows that can be measured here, for `take_turns`; reports skipped rows."""
    contenders: dict[str, Callable[[int], Reading]] = {}
    for name in rows:
        reason = skip_reason(name)
        if reason:
            say(f"skipped: {name} ({reason})")
        else:
            contenders[name] = partial(measure, name)
    return contenders


def ratios(ours: Iterable[float], theirs: Iterable[float]) -> dict[str, float]:
    """Returns the spread of our values divided by theirs, repetition by repetition."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def column(readings: Iterable[Reading], name: str) -> list[float]:
    """Returns one value of each repetition."""
    return [reading[name] for reading in readings]


def summary(readings: list[Reading]) -> dict[str, Any]:
    """Returns the spread of every value over the repetitions."""
    return {name: spread(column(readings, name)) for name in readings[0]}


def learning(returns: Sequence[float]) -> Reading:
    """Summarizes a learning curve by the mean return of each quarter of the training episodes."""
    ends = [round(quarter * len(returns) / 4) for quarter in range(5)]
    return {
        f"return_{number}_of_4": fmean(returns[first:last])
        for number, (first, last) in enumerate(pairwise(ends), 1)
    }


def spread(values: list[float]) -> dict[str, float]:
    """Returns median, minimum and maximum, to four significant digits."""
    figures = {"median": median(values), "min": min(values), "max": max(values)}
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def emit(benchmark: str, row: str, line: Mapping[str, Any]) -> None:
    """Prints one row of the table, with machine and versions."""
    content = {"benchmark": benchmark, "row": row, **line, "machine": facts()}
    print(json.dumps(content), flush=True)


def say(message: str) -> None:
    """Prints progress to standard error; standard output is for the table only."""
    print(message, file=sys.stderr, flush=True)
