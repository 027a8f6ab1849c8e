"""Formatting of numbers for display."""

from __future__ import annotations

import math

import pytest

from border_cli.recorder import figures


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.count(12_300), "12,300"),
        (figures.count(9_999_999), "9,999,999"),
        (figures.count(12_345_678), "12.35 M"),
        (figures.rate(1210.4), "1,210"),
        (figures.rate(0.421), "0.421"),
        (figures.rate(0.0), "0"),
        (figures.score(-412.345), "-412.3"),
        (figures.ratio(0.9987), "1.00"),
        (figures.percent(0.624), "62 %"),
        (figures.duration(12.9), "0:12"),
        (figures.duration(3_723), "1:02:03"),
        (figures.duration(180_000), "2 d 2:00:00"),
    ],
)
def test_a_number_is_short_and_has_its_unit(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    "figure",
    [
        figures.count,
        figures.rate,
        figures.score,
        figures.ratio,
        figures.percent,
        figures.duration,
    ],
)
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_not_known_is_a_dash(figure: object, value: float | None) -> None:
    assert callable(figure)
    assert figure(value) == "-"
