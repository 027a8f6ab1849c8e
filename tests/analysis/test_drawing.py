"""Pictures: what groups look like, and what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.analysis.curves import Report, RunCurve, report
from border_cli.analysis.drawing import drawn


def a_report(groups: int, envs: tuple[str, ...] = ("cartpole",), *, name: str = "") -> Report:
    runs = [
        RunCurve(
            name="run",
            env=env,
            group=f"{name}{number}",
            x=np.arange(1.0, 21.0),
            y=np.arange(20.0) + number + seed,
            budget=20.0,
            normalized=float(number),
        )
        for env in envs
        for number in range(groups)
        for seed in range(2)
    ]
    return report(runs, by=["agent.double"], x="env_steps", y="eval/return", stat="mean")


def test_an_svg_is_the_same_whenever_it_is_drawn() -> None:
    first = drawn(a_report(2), "svg")
    assert first == drawn(a_report(2), "svg")
    for text in ("agent.double", "cartpole", "env steps", "eval/return, mean"):
        assert f">{text}<".encode() in first


@pytest.mark.parametrize("envs", [("cartpole",), ("cartpole", "acrobot")])
def test_every_name_is_whole_in_the_picture(envs: tuple[str, ...]) -> None:
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from border_cli.analysis.drawing import STYLE, picture

    long = "agent.learning_rate=0.0003, replay_buffer=prioritized, step_processor.n_steps="
    with style.context(["default", STYLE]):
        figure = picture(a_report(10, envs, name=long))
        FigureCanvasAgg(figure).draw()
        [legend] = figure.legends
        box = legend.get_window_extent()
        panels = [axes for axes in figure.axes if axes.axison]
    assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == [
        f"{long}{number}" for number in range(10)
    ]
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.width
    assert all(axes.get_window_extent().y0 > box.y1 for axes in panels)
    assert len(panels) == (1 if len(envs) == 1 else 3)  # and the performance profile


def test_dollar_signs_are_no_formulas_and_the_users_style_changes_nothing() -> None:
    import matplotlib as mpl

    plain = drawn(a_report(2, name=r"$\frac$"), "svg")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        assert drawn(a_report(2, name=r"$\frac$"), "svg") == plain
    assert rb">$\frac$0<" in plain


def test_a_png_is_drawn() -> None:
    assert drawn(a_report(1), "png").startswith(b"\x89PNG")
