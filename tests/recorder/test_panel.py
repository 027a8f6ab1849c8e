"""Progress of a run as displayed: rates, remaining time, the live panel and the plain line."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.panel import ENDED, RunView, line, panel

MEMORY = "412 MB of 8.2 GB"
GAUGES = {
    "async/opt_steps_per_sec": 1_210.0,
    "async/samples_per_sec": 1_250.0,
    "async/samples_per_opt_steps": 1.0331,
    "async/weight_lag": 34.0,
    "async/queue_fill": 0.12,
    "async/buffer_fill": 0.143,
    "episode/return": 210.44,
}


def view(
    max_opt_steps: int | None = 20_000,
    max_env_steps: int | None = None,
    max_time_s: float | None = None,
    best: tuple[float, int] | None = None,
) -> RunView:
    info = RunInfo(
        name="dqn_cartpole",
        run_dir=Path("somewhere"),
        max_opt_steps=max_opt_steps,
        max_env_steps=max_env_steps,
        max_time_s=max_time_s,
        best=best,
    )
    return RunView(info)


def at(time_s: float, opt_steps: int) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=1_000 + opt_steps, time_s=time_s)


def progress(step: RecordStep, gauges: Metrics, phase: str = "learning") -> Progress:
    return Progress(step=step, phase=phase, samples_total=step.env_steps, gauges=gauges)


def step(opt_steps: int, env_steps: int, time_s: float) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=env_steps, time_s=time_s)


def midway() -> RunView:
    run = view()
    run.take_progress(progress(at(2.0, 300), GAUGES))
    run.take_progress(progress(at(7.0, 6_250), GAUGES))
    run.take_row(at(9.0, 9_000), {"eval/return": 487.2})
    run.take_row(at(12.0, 12_000), {"eval/return": 412.3})
    run.take_progress(progress(at(12.0, 12_300), GAUGES))  # 12,000 updates in 10 s
    return run


def drawn(run: RunView, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, _environ={})
    console.print(panel(run, MEMORY))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def words(rows: list[str]) -> str:
    return " ".join(" ".join(rows).replace("│", "").split())


def test_the_panel_shows_everything_in_ten_lines_of_eighty_columns_and_a_hint() -> None:
    *rows, hint = drawn(midway())
    assert hint.rstrip() == "Ctrl-C stops the run and saves a checkpoint"
    assert len(rows) == 10
    assert {len(row) for row in rows} == {80}
    assert rows[0].startswith("╭─ dqn_cartpole  learning ──")
    for expected in (
        "62 % of updates 0:06 left",  # 7,700 updates at 1,200 per second
        "updates 12,300 of 20,000",
        "env steps 13,300",
        "best eval 487.2 at 9,000",
        "last eval 412.3",
        "updates/s 1,200",
        "samples/s 1,200",
        "per update 1.00 samples",
        "return 210.4",
        "queue 12 %",
        "buffer 14 %",
        "weight lag 34",
        "memory 412 MB of 8.2 GB",
        "time 0:12",
    ):
        assert expected in words(rows)


def test_large_numbers_fit_sixty_columns() -> None:
    run = view(max_opt_steps=1_000_000_000)
    large = RecordStep(opt_steps=123_456_789, env_steps=2_000_000_000, time_s=400_000.0)
    run.take_progress(progress(large, GAUGES))
    rows = drawn(run, width=60)[:-1]
    assert len(rows) == 10
    assert {len(row) for row in rows} == {60}


def test_a_line_says_what_the_panel_shows() -> None:
    assert line(midway(), MEMORY) == (
        "learning  updates 12,300 of 20,000  env steps 13,300  best eval 487.2 at 9,000  "
        "last eval 412.3  updates/s 1,200  samples/s 1,200  per update 1.00 samples  "
        "return 210.4  queue 12 %  buffer 14 %  weight lag 34  memory 412 MB of 8.2 GB  "
        "time 0:12  62 % of updates  left 0:06"
    )


PROBLEM = "the checkpoint of update 12,000 could not be written: No space left on device: '/a/b/c'"


def in_trouble(message: str) -> RunView:
    run = midway()
    run.take_progress(
        Progress(
            step=at(12.0, 12_300), phase="learning", samples_total=0, gauges=GAUGES, problem=message
        )
    )
    return run


def test_a_problem_takes_one_line_of_the_panel_until_it_is_over() -> None:
    run = in_trouble(f"{PROBLEM}\nand more")
    for width in (60, 80):
        rows = drawn(run, width)[:-1]
        assert len(rows) == 11
        assert {len(row) for row in rows} == {width}
        assert rows[1].startswith("│ the checkpoint of update 12,000 could not be written")
        assert rows[1].endswith("… │")
    run.take_progress(progress(at(12.5, 12_400), GAUGES))
    assert len(drawn(run)) == 10 + 1


def test_rates_are_means_over_the_last_seconds_because_samples_arrive_in_bursts() -> None:
    run = view()
    for tenth in range(100):  # 20 updates every 0.1 s, 100 samples every 0.5 s
        step = RecordStep(
            opt_steps=20 * tenth, env_steps=100 * (tenth // 5), time_s=3.0 + tenth / 10
        )
        run.take_progress(progress(step, {"async/samples_per_sec": 0.0}))
    rates = run.rates()
    assert rates.updates == pytest.approx(200)
    assert rates.samples == pytest.approx(200, rel=0.05)


def test_a_run_that_has_ended_has_nothing_left_and_no_hint() -> None:
    run = midway()
    run.phase = ENDED
    rows = drawn(run)
    assert len(rows) == 10
    assert "62 % of updates │" in rows[1]
    assert "left" not in line(run, MEMORY)


def test_the_rates_are_counted_from_where_learning_begins() -> None:
    run = view(1_000)
    run.take_progress(progress(step(0, 0, 0.0), {}, "warm-up"))
    run.take_progress(progress(step(0, 500, 9.0), {}, "warm-up"))
    nearest = run.nearest_budget()
    assert nearest is not None
    assert (nearest.fraction, nearest.left_s) == (0.0, math.inf)

    run.take_progress(progress(step(100, 600, 10.0), {}))
    run.take_progress(progress(step(300, 800, 12.0), {}))  # 100 updates/s, 700 left
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
    run = view(1_000, max_env_steps=max_env_steps, max_time_s=max_time_s)
    run.take_progress(progress(step(280, 780, 10.0), {}))
    run.take_progress(progress(step(300, 800, 12.0), {}))
    nearest = run.nearest_budget()
    assert nearest is not None
    assert (nearest.unit, nearest.left_s) == (unit, left_s)


def test_the_rates_of_a_resumed_run_leave_out_that_it_fills_its_buffer_again() -> None:
    run = view(1_000)
    for at in (step(500, 700, 90.0), step(500, 900, 100.0)):
        run.take_progress(progress(at, {}, "warm-up"))
    run.take_progress(progress(step(510, 900, 100.0), {}))
    run.take_progress(progress(step(610, 900, 102.0), {}))  # 50 updates/s, 390 left
    nearest = run.nearest_budget()
    assert nearest is not None
    assert nearest.left_s == pytest.approx(7.8)


def test_the_best_score_of_the_attempts_before_counts() -> None:
    run = view(best=(9.0, 40))
    assert run.best == (9.0, 40)
    run.take_row(step(60, 0, 1.0), {"eval/return": 8.0})
    assert run.best == (9.0, 40)
    run.take_row(step(70, 0, 1.0), {"eval/return": 9.5})
    assert run.best == (9.5, 70)
