"""Figures of a report: determinism, legends, tick labels and text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from border_cli.analysis.curves import Report, RunCurve, report
from border_cli.analysis.drawing import STYLE, picture, render

LONG = "agent.learning_rate=0.0003, replay_buffer=prioritized, step_processor.n_steps="


def a_report(groups: int, envs: tuple[str, ...] = ("cartpole",), *, name: str = "") -> Report:
    runs = [
        RunCurve(
            name="run",
            env=env,
            group=f"{name}{number}",
            x=np.arange(1.0, 21.0),
            y=np.arange(20.0) + number + seed,
            normalized=float(number),
        )
        for env in envs
        for number in range(groups)
        for seed in range(2)
    ]
    return report(runs, by=["agent.double"], x="env_steps", y="eval/return", stat="mean")


@contextmanager
def figure_of(data: Report, size: tuple[float, float] | None) -> Iterator[Figure]:
    """Yields the figure of a report after its layout, within the style context `STYLE`."""
    with style.context(["default", STYLE]):
        figure = picture(data, size)
        FigureCanvasAgg(figure).draw()
        yield figure


def test_a_picture_is_the_same_whenever_and_wherever_it_is_drawn() -> None:
    script = (
        "import hashlib, test_drawing as here; "
        "files = [here.render(here.a_report(2), kind) for kind in ('svg', 'pdf', 'png')]; "
        "print([hashlib.sha256(file).hexdigest() for file in files])"
    )
    here = str(Path(__file__).parent)
    first, second = (
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": here, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second


def test_an_svg_names_groups_environment_and_axes() -> None:
    svg = render(a_report(2), "svg")
    for text in ("agent.double", "cartpole", "env steps", "eval/return, mean"):
        assert f">{text}<".encode() in svg


@pytest.mark.parametrize(
    ("groups", "envs", "size"),
    [
        (10, ("cartpole",), None),
        (10, ("cartpole", "acrobot"), None),
        (8, ("cartpole",), (3.0, 8.0)),
    ],
)
@pytest.mark.parametrize("name", ["", LONG])
def test_every_name_is_whole_in_the_picture(
    groups: int, envs: tuple[str, ...], size: tuple[float, float] | None, name: str
) -> None:
    with figure_of(a_report(groups, envs, name=name), size) as figure:
        [legend] = figure.legends
        panels = [axes for axes in figure.axes if axes.axison]
        assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == [
            f"{name}{number}" for number in range(groups)
        ]
        box = legend.get_window_extent()
        assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= figure.bbox.width) == (True, True, True)
        assert all(axes.get_window_extent().y0 > box.y1 for axes in panels)
        assert len(panels) == (1 if len(envs) == 1 else 3)  # plus the performance profile


@pytest.mark.parametrize("size", [None, (2.5, 2.5)])
@pytest.mark.parametrize(("lowest", "highest"), [(499.99, 500.0), (0.0, 0.01), (-1e6, 0.0)])
def test_no_two_labels_of_ticks_touch_or_are_equal(
    lowest: float, highest: float, size: tuple[float, float] | None
) -> None:
    x, y = np.linspace(1000.0, 20_000.0, 20), np.linspace(lowest, highest, 20)
    run = RunCurve(name="run", env="cartpole", group="dqn", x=x, y=y)
    data = report([run], by=["agent"], x="env_steps", y="eval/return", stat="mean")
    with figure_of(data, size) as figure:
        for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
            labels = [label for label in axis.get_ticklabels() if label.get_text()]
            assert len({label.get_text() for label in labels}) == len(labels) >= 2
            boxes = [label.get_window_extent() for label in labels]
            assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_dollar_signs_are_no_formulas_and_the_users_style_changes_nothing() -> None:
    plain = render(a_report(2, name=r"$\frac$"), "svg")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        assert render(a_report(2, name=r"$\frac$"), "svg") == plain
    assert rb">$\frac$0<" in plain
