"""The tables of a report, for the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from border_cli.analysis.curves import ALL, STATS, X_NAMES, Report
from border_cli.analysis.statistics import Estimate

NOTHING = "–"
METHODS = {
    "mean": "mean and 95 % interval (Student's t) over seeds",
    "iqm": "interquartile mean and 95 % interval (stratified bootstrap) over seeds",
}

MOST_PAIRS = 10  # maximum number of probabilities of improvement in the terminal
IMPROVEMENT = "probability that a run of the group ends above one of the other; a tie counts half"
UNKNOWN = Estimate(*np.full(3, np.nan))

Row = list[str]


def number(value: float, *others: float) -> str:
    """412.345 -> `412.3`, 4.1 -> `4.10`, 0.0123456 -> `0.01235`, and NaN -> an en dash.

    The number of decimals depends on the largest of `value` and `others`.
    """
    if not math.isfinite(value):
        return NOTHING
    largest = max(abs(other) for other in (value, *others) if math.isfinite(other))
    if largest < 1:
        return f"{value:.4g}"
    return f"{value:,.1f}" if largest >= 100 else f"{value:.2f}"


def with_interval(estimate: Estimate | None) -> str:
    """Formats an estimate: `412.3 [380.1, 444.5]`."""
    values = [float(part) for part in estimate or UNKNOWN]
    return _with_brackets(values, lambda value: number(value, *values))


def _with_brackets(estimate: Sequence[float], text: Callable[[float], str]) -> str:
    mid, low, high = map(text, estimate)
    return mid if math.isnan(estimate[1]) else f"{mid} [{low}, {high}]"


class Section(NamedTuple):
    """A table with its title and a note."""

    title: str
    note: str
    head: Row
    rows: list[Row]
    names: int  # number of leading columns with text
    most: int | None = None  # maximum number of rows in the terminal


def sections(report: Report) -> Iterator[Section]:
    """Yields the final scores and, for several groups, the probabilities of improvement."""
    yield _final_section(report)
    if report.improvements:
        yield _improvement_section(report)


def _final_section(report: Report) -> Section:
    """Builds the table of final scores, without columns that would be empty or constant."""
    by = ", ".join(report.by) or "group"
    head = ["env", by, "seeds", STATS[report.stat], "lowest", "highest", "normalised", "budget"]
    rows = [
        [
            "all (normalised)" if final.env == ALL else final.env,
            final.group,
            str(len(final.runs)),
            with_interval(final.score),
            *(number(limit, *final.limits) for limit in final.limits),
            with_interval(final.normalized),
            f"{final.budget:,.0f} {X_NAMES[report.x_name]}",
        ]
        for final in report.finals
    ]
    included = [True] * len(head)
    included[0] = len(report.panels) > 1
    included[6] = any(score.normalized for score in report.finals)
    head, *rows = [list(compress(row, included)) for row in (head, *rows)]
    return Section(f"Final {report.y_name}", METHODS[report.stat], head, rows, 1 + included[0])


def _improvement_section(report: Report) -> Section:
    """Builds the table of probabilities of improvement, the highest first."""
    rows = [
        [
            pair.group,
            pair.other,
            _with_brackets([*map(float, pair.probability)], "{:.2f}".format),
            ", ".join(map(str, pair.seeds)),
        ]
        for pair in sorted(report.improvements, key=lambda item: -item.probability.mid)
    ]
    head = ["group", "ends above", "probability", "seeds"]
    return Section("Probability of improvement", IMPROVEMENT, head, rows, 2, MOST_PAIRS)


def markdown(report: Report) -> str:
    """Formats the tables and warnings of a report as Markdown."""
    parts = [
        f"{section.title}: {section.note}.\n\n{_pipes(section.head, section.rows)}"
        for section in sections(report)
    ]
    return "\n".join([*parts, *(f"Warning: {warning}.\n" for warning in report.warnings)])


def _pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def csv_text(report: Report, kind: str) -> str:
    """Formats the curves, scores, improvements or profiles of a report as CSV.

    NaN is written as an empty cell, which spreadsheets and pandas read as missing.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in CSV[kind](report):
        writer.writerow(["" if value != value else value for value in row])
    return text.getvalue()


def _curves(report: Report) -> Iterator[list[object]]:
    yield ["env", "group", report.x_name, report.stat, "low", "high", "seeds"]
    for env, curves in report.panels:
        for curve in curves:
            for x, *values in np.column_stack([curve.x, *curve.y]).tolist():
                position = int(x) if x == int(x) else x
                yield [env, curve.group, position, *values, len(curve.runs)]


def _scores(report: Report) -> Iterator[list[object]]:
    yield [
        *("env", "group", "seeds", report.stat, "low", "high", "lowest", "highest"),
        *("normalised", "normalised_low", "normalised_high", "budget", "budget_unit"),
    ]
    for final in report.finals:
        score, normalized = final.score or UNKNOWN, final.normalized or UNKNOWN
        head, unit = [final.env, final.group, len(final.runs)], X_NAMES[report.x_name]
        yield [*head, *score, *final.limits, *normalized, final.budget, unit]


def _improvements(report: Report) -> Iterator[list[object]]:
    yield ["group", "other", "probability", "low", "high", "seeds", "other_seeds"]
    for pair in report.improvements:
        yield [pair.group, pair.other, *pair.probability, *pair.seeds]


def _profiles(report: Report) -> Iterator[list[object]]:
    yield ["group", "normalised_score", "share_above", "low", "high"]
    for profile in report.profiles:
        for values in np.column_stack([profile.thresholds, *profile.shares]).tolist():
            yield [profile.group, *values]


CSV: Mapping[str, Callable[[Report], Iterator[list[object]]]] = {
    "curves": _curves,
    "scores": _scores,
    "improvement": _improvements,
    "profile": _profiles,
}
