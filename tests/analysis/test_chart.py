"""Curves as text."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.analysis.chart import Line, chart, letter
from border_cli.analysis.curves import Panel, RunCurve, report


def a_panel(*curves: list[float]) -> tuple[Panel, tuple[str, ...]]:
    runs = [
        RunCurve(
            name="run",
            env="cartpole",
            group=f"group {number}",
            x=np.arange(len(y)) * 1000.0,
            y=np.array(y),
            budget=1.0,
        )
        for number, y in enumerate(curves)
    ]
    found = report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")
    return found.panels[0], found.groups


def texts(lines: list[Line]) -> list[str]:
    return ["".join(piece.text for piece in line).rstrip() for line in lines]


def test_without_braille_letters_draw_the_curves() -> None:
    panel, groups = a_panel([0.0, 4.0], [4.0, 4.0])
    lines = texts(chart(panel, groups, "env_steps", width=27, height=5, braille=False))
    assert lines == [
        "4.00 |BBBBBBBBBBBBBBBBBBBBB",
        "     |             AAAAA",
        "2.00 |        AAAAA",
        "     |   AAAAA",
        "0.00 |AAA",
        "      0     1,000 env steps",
    ]


def test_braille_dots_follow_a_curve_and_its_letter_names_it() -> None:
    panel, groups = a_panel([0.0, 1.0])
    lines = chart(panel, groups, "opt_steps", width=26, height=5, braille=True)
    drawn = [piece for line in lines for piece in line if piece.group == 0]
    dots = "".join(piece.text for piece in drawn)
    assert dots.count("A") == 1
    assert all(each == "A" or 0x2801 <= ord(each) <= 0x28FF for each in dots.replace(" ", ""))
    assert texts(lines)[0].endswith(("⠉", "⠁", "⠈", "⡠", "⠔", "⠊", "⠒"))


@pytest.mark.parametrize("braille", [True, False])
def test_flat_curves_and_single_points_are_drawn(braille: bool) -> None:
    for curves in ([[3.0, 3.0]], [[3.0]]):
        panel, groups = a_panel(*curves)
        lines = texts(chart(panel, groups, "time_s", width=10, height=3, braille=braille))
        assert len(lines) == 4
        assert len(lines[1]) > len("3.00 |")


def test_more_groups_than_letters_share_a_sign() -> None:
    assert (letter(0), letter(51), letter(52)) == ("A", "z", "*")
