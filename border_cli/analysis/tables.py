"""A report as tables: rows for the terminal, Markdown and CSV."""

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

MOST_PAIRS = 10  # probabilities of improvement in the terminal
IMPROVEMENT = "how likely a run of the group ends above one of the other; a tie counts half"
UNKNOWN = Estimate(*np.full(3, np.nan))

Row = list[str]


def number(value: float, *others: float) -> str:
    """412.345 -> `412.3`, 4.1 -> `4.10`, 0.0123456 -> `0.01235`, and an en dash for NaN.

    With as many decimals as the largest of `others` has.
    """
    if not math.isfinite(value):
        return NOTHING
    largest = max(abs(each) for each in (value, *others) if math.isfinite(each))
    if largest < 1:
        return f"{value:.4g}"
    return f"{value:,.1f}" if largest >= 100 else f"{value:.2f}"


def with_interval(estimate: Estimate | None) -> str:
    """`412.3 [380.1, 444.5]`."""
    values = [float(each) for each in estimate or UNKNOWN]
    return _bracketed(values, lambda value: number(value, *values))


def _bracketed(estimate: Sequence[float], text: Callable[[float], str]) -> str:
    mid, low, high = map(text, estimate)
    return mid if math.isnan(estimate[1]) else f"{mid} [{low}, {high}]"


class Section(NamedTuple):
    """A table, and what is said of it."""

    title: str
    note: str
    head: Row
    rows: list[Row]
    names: int  # columns in front that are no figures
    most: int | None = None  # rows in the terminal


def sections(report: Report) -> Iterator[Section]:
    """The final scores and, of several groups, the probabilities of improvement."""
    yield _final_section(report)
    if report.improvements:
        yield _improvement_section(report)


def _final_section(report: Report) -> Section:
    """Columns that say nothing are left out."""
    by = ", ".join(report.by) or "group"
    head = ["env", by, "seeds", STATS[report.stat], "lowest", "highest", "normalised", "budget"]
    rows = [
        [
            "all (normalised)" if each.env == ALL else each.env,
            each.group,
            str(len(each.runs)),
            with_interval(each.score),
            *(number(limit, *each.limits) for limit in each.limits),
            with_interval(each.normalized),
            f"{each.budget:,.0f} {X_NAMES[report.x_name]}",
        ]
        for each in report.finals
    ]
    shown = [True] * len(head)
    shown[0] = len(report.panels) > 1
    shown[6] = any(each.normalized for each in report.finals)
    head, *rows = [list(compress(row, shown)) for row in (head, *rows)]
    return Section(f"Final {report.y_name}", METHODS[report.stat], head, rows, 1 + shown[0])


def _improvement_section(report: Report) -> Section:
    """The clearest first."""
    rows = [
        [
            each.group,
            each.other,
            _bracketed([*map(float, each.probability)], "{:.2f}".format),
            ", ".join(map(str, each.seeds)),
        ]
        for each in sorted(report.improvements, key=lambda each: -each.probability.mid)
    ]
    head = ["group", "ends above", "probability", "seeds"]
    return Section("Probability of improvement", IMPROVEMENT, head, rows, 2, MOST_PAIRS)


def markdown(report: Report) -> str:
    """A report without its curves, in Markdown."""
    parts = [
        f"{each.title}: {each.note}.\n\n{_pipes(each.head, each.rows)}" for each in sections(report)
    ]
    return "\n".join([*parts, *(f"Warning: {each}.\n" for each in report.warnings)])


def _pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def csv_text(report: Report, kind: str) -> str:
    """The curves, scores, improvements or profiles of a report; NaN is an empty cell, which
    spreadsheets and pandas read as missing."""
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
                whole = int(x) if x == int(x) else x
                yield [env, curve.group, whole, *values, len(curve.runs)]


def _scores(report: Report) -> Iterator[list[object]]:
    yield [
        *("env", "group", "seeds", report.stat, "low", "high", "lowest", "highest"),
        *("normalised", "normalised_low", "normalised_high", "budget", "budget_unit"),
    ]
    for each in report.finals:
        score, normalized = each.score or UNKNOWN, each.normalized or UNKNOWN
        place, unit = [each.env, each.group, len(each.runs)], X_NAMES[report.x_name]
        yield [*place, *score, *each.limits, *normalized, each.budget, unit]


def _improvements(report: Report) -> Iterator[list[object]]:
    yield ["group", "other", "probability", "low", "high", "seeds", "other_seeds"]
    for each in report.improvements:
        yield [each.group, each.other, *each.probability, *each.seeds]


def _profiles(report: Report) -> Iterator[list[object]]:
    yield ["group", "normalised_score", "share_above", "low", "high"]
    for each in report.profiles:
        for values in np.column_stack([each.thresholds, *each.shares]).tolist():
            yield [each.group, *values]


CSV: Mapping[str, Callable[[Report], Iterator[list[object]]]] = {
    "curves": _curves,
    "scores": _scores,
    "improvement": _improvements,
    "profile": _profiles,
}
