"""Curves as text."""

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
    found = report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")
    drawn = chart(found.panels[0], found.groups, "env_steps", width=width, colored=colored)
    return plotext.uncolorize(drawn).splitlines()


def test_without_colours_each_curve_is_drawn_in_its_letter() -> None:
    drawn = lines([0.0, 4.0], [4.0, 4.0], width=40)
    assert {len(line) for line in drawn} == {40}
    assert "B" * 30 in drawn[1]  # at the top, over the end of A
    assert drawn[-4].startswith("0.00┤AA")
    assert drawn[-1].strip() == "env steps"


def test_with_colours_curves_are_lines_while_there_are_colours_for_all() -> None:
    assert "A" not in "".join(lines([0.0, 4.0], colored=True))
    assert [mark(number, 6, colored=True) for number in range(6)] == [LINE] * 6
    assert mark(1, 7, colored=True) == "B"
