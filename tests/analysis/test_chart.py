"""Plots of curves as text, with and without colours."""

from __future__ import annotations

import numpy as np
import plotext

from border_cli.analysis.chart import LINE, chart, mark
from border_cli.analysis.curves import RunCurve, report


def lines(*curves: list[float], width: int = 60, colored: bool = False) -> list[str]:
    runs = [
        RunCurve(
            name="run",
            env="cartpole",
            group=f"group {number}",
            x=np.arange(len(y)) * 1000.0,
            y=np.array(y),
        )
        for number, y in enumerate(curves)
    ]
    data = report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")
    text = chart(data.panels[0], data.groups, "env_steps", width=width, colored=colored)
    return plotext.uncolorize(text).splitlines()


def test_without_colours_each_curve_is_drawn_in_its_letter() -> None:
    rows = lines([0.0, 4.0], [4.0, 4.0], width=40)
    assert {len(row) for row in rows} == {40}
    assert "B" * 30 in rows[1]  # the top row, where B covers the end of A
    assert rows[-4].startswith("0.00┤AA")
    assert rows[-1].strip() == "env steps"


def test_with_colours_curves_are_lines_while_there_are_colours_for_all() -> None:
    assert "A" not in "".join(lines([0.0, 4.0], colored=True))
    assert [mark(number, 6, colored=True) for number in range(6)] == [LINE] * 6
    assert mark(1, 7, colored=True) == "B"
