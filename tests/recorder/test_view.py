"""What is known of a run while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.panel import RunView


def view(
    max_opt_steps: int | None = None,
    max_env_steps: int | None = None,
    max_time_s: float | None = None,
) -> RunView:
    info = RunInfo(
        name="test",
        run_dir=Path("somewhere"),
        max_opt_steps=max_opt_steps,
        max_env_steps=max_env_steps,
        max_time_s=max_time_s,
    )
    return RunView(info)


def step(opt_steps: int, env_steps: int, time_s: float) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=env_steps, time_s=time_s)


def progress(at: RecordStep, gauges: Metrics | None = None) -> Progress:
    return Progress(
        step=at, phase="learning", samples_total=at.env_steps, gauges=gauges if gauges else {}
    )


def test_the_pace_is_counted_from_where_learning_begins() -> None:
    run = view(max_opt_steps=1_000)
    run.take_progress(progress(step(0, 0, 0.0)))
    run.take_progress(progress(step(0, 500, 9.0)))
    nearest = run.nearest_budget()
    assert nearest is not None
    assert (nearest.fraction, nearest.left_s) == (0.0, None)

    run.take_progress(progress(step(100, 600, 10.0)))
    run.take_progress(progress(step(300, 800, 12.0)))  # 200 in 2 s: the last 700 take 7 s
    nearest = run.nearest_budget()
    assert nearest is not None
    assert (nearest.unit, nearest.fraction, nearest.left_s) == ("updates", 0.3, 7.0)


@pytest.mark.parametrize(
    ("max_env_steps", "max_time_s", "unit", "left_s"),
    [(None, None, "updates", 70.0), (900, None, "env steps", 10.0), (900, 13.0, "time", 1.0)],
)
def test_the_nearest_budget_is_the_one_that_ends_the_run_first(
    max_env_steps: int | None, max_time_s: float | None, unit: str, left_s: float
) -> None:
    run = view(max_opt_steps=1_000, max_env_steps=max_env_steps, max_time_s=max_time_s)
    run.take_progress(progress(step(280, 780, 10.0)))
    run.take_progress(progress(step(300, 800, 12.0)))
    nearest = run.nearest_budget()
    assert nearest is not None
    assert (nearest.unit, nearest.left_s) == (unit, left_s)


def test_the_pace_of_a_resumed_run_leaves_out_that_it_fills_its_buffer_again() -> None:
    run = view(max_opt_steps=1_000)
    for at in (step(500, 700, 90.0), step(500, 900, 100.0)):
        filling = Progress(step=at, phase="warm-up", samples_total=0, gauges={})
        run.take_progress(filling)
    run.take_progress(progress(step(510, 900, 100.0)))
    run.take_progress(progress(step(610, 900, 102.0)))  # 100 in 2 s: the last 390 take 7.8 s
    nearest = run.nearest_budget()
    assert nearest is not None
    assert nearest.left_s == pytest.approx(7.8)


def test_the_best_score_of_the_attempts_before_counts() -> None:
    before = RunInfo(
        name="test", run_dir=Path("somewhere"), max_opt_steps=1_000, max_env_steps=None,
        max_time_s=None, best=(9.0, 40),
    )  # fmt: skip
    run = RunView(before)
    assert run.best == (9.0, 40)
    run.take_row(step(60, 0, 1.0), {"eval/return": 8.0})
    assert run.best == (9.0, 40)
    run.take_row(step(70, 0, 1.0), {"eval/return": 9.5})
    assert run.best == (9.5, 70)
