"""Curves of groups: common steps, ends, final scores and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from border_cli.analysis.curves import ALL, Report, RunCurve, on_one_grid, report


def run(
    y: Sequence[float],
    x: Sequence[float] | None = None,
    *,
    group: str = "a",
    env: str = "cartpole",
    stopped: bool = False,
    normalized: float | None = None,
) -> RunCurve:
    steps = np.array(x if x is not None else np.arange(1, len(y) + 1) * 100.0)
    return RunCurve(
        name=f"{group}_{env}",
        env=env,
        group=group,
        x=steps,
        y=np.array(y),
        stopped=stopped,
        normalized=normalized,
    )


def report_of(runs: Sequence[RunCurve], stat: str = "mean", *, hold: bool = False) -> Report:
    return report(runs, by=["agent"], x="env_steps", y="eval/return", stat=stat, hold=hold)


def test_equal_steps_are_kept_as_they_are() -> None:
    x, values = on_one_grid([run([1.0, 2.0], [50, 150]), run([3.0, 5.0], [50, 150])], hold=False)
    assert x.tolist() == [50, 150]
    assert values.tolist() == [[1, 2], [3, 5]]


def test_other_steps_are_interpolated_between_the_latest_start_and_the_first_end() -> None:
    x, values = on_one_grid([run([0.0, 10.0], [0, 100]), run([2.0, 4.0], [20, 60])], hold=False)
    assert (x[0], x[-1]) == (20, 60)
    assert values[0, 0] == pytest.approx(2.0)  # 20 of 100 steps from 0 to 10
    assert values[:, -1].tolist() == pytest.approx([6.0, 4.0])


def test_the_band_has_its_points_at_evaluations_and_does_not_narrow_between_them() -> None:
    rising, falling = run([0.0, 10.0, 0.0], [0, 100, 200]), run([10.0, 0.0, 10.0], [0, 100, 250])
    [[curve]] = [panel.curves for panel in report_of([rising, falling]).panels]
    assert curve.x.tolist() == [0, 100, 200]
    # For 2 seeds, half the interval is 12.706 times half their distance: 10, 10, and 20 / 3 at step
    # 200, where the second seed is two thirds of the way from 0 to 10.
    half = (curve.y.high - curve.y.low) / 2
    assert half == pytest.approx([63.53, 63.53, 42.35], abs=0.01)


@pytest.mark.parametrize(("stopped", "hold"), [(True, False), (False, True)])
def test_a_run_that_is_held_keeps_its_last_value(stopped: bool, hold: bool) -> None:
    short = run([1.0, 7.0], [0, 50], stopped=stopped)
    x, values = on_one_grid([short, run([0.0, 10.0], [0, 100])], hold=hold)
    assert x[-1] == 100
    assert values[:, -1].tolist() == [7.0, 10.0]


def test_final_scores_are_those_at_each_runs_own_end() -> None:
    summary = report_of([run([0.0, 4.0]), run([0.0, 6.0, 8.0]), run([1.0, 3.0], group="b")])
    first, second = summary.finals
    assert (first.group, len(first.runs), float(first.score.mid)) == ("a", 2, 6.0)  # type: ignore[union-attr]
    assert (first.limits, first.budget) == ((4.0, 8.0), 250.0)
    assert (second.group, len(second.runs)) == ("b", 1)


def test_the_better_group_comes_first_in_an_improvement() -> None:
    worse = [run([1.0]), run([3.0])]
    better = [run([2.0], group="b"), run([4.0], group="b"), run([5.0], group="b")]
    [pair] = report_of([*worse, *better]).improvements
    assert (pair.group, pair.other, pair.seeds) == ("b", "a", (3, 2))
    assert float(pair.probability.mid) == pytest.approx(5 / 6)  # 2 < 3 is the only loss
    assert pair.probability.low <= pair.probability.mid <= pair.probability.high


def test_normalised_scores_are_put_together_over_environments() -> None:
    runs = [
        run([value], env=env, group=group, normalized=value)
        for env in ("cartpole", "acrobot")
        for group, values in (("a", (10.0, 30.0)), ("b", (50.0, 70.0)))
        for value in values
    ]
    for stat in ("mean", "iqm"):
        summary = report_of(runs, stat)
        overall = {final.group: final for final in summary.finals if final.env == ALL}
        assert {group: len(score.runs) for group, score in overall.items()} == {"a": 4, "b": 4}
        assert float(overall["a"].normalized.mid) == 20.0  # type: ignore[union-attr]
        assert overall["a"].score is None
    shares = next(curve.shares.mid for curve in summary.profiles if curve.group == "a")
    assert shares[[0, 9, 10, 29, 30, 100]].tolist() == [1, 1, 0.5, 0.5, 0, 0]  # above 0, 9, 10, …


def test_a_group_without_normalised_scores_on_some_environment_has_no_profile() -> None:
    normalized = [run([1.0], env=env, normalized=1.0) for env in ("cartpole", "acrobot")]
    assert report_of(normalized).profiles
    assert [final.env for final in report_of(normalized[:1]).finals] == ["cartpole"]
    mixed = [normalized[0], replace(normalized[1], normalized=None)]
    partial = report_of(mixed)
    assert not partial.profiles
    assert [final.env for final in partial.finals] == ["cartpole", "acrobot"]


def test_one_seed_is_named() -> None:
    [warning] = report_of([run([1.0])]).warnings
    assert warning == "a on cartpole: one seed, so it has no interval"


def test_unequal_budgets_are_named_with_the_runs_that_ended_early() -> None:
    runs = [run([1.0, 2.0]), run([1.0, 2.0, 3.0, 4.0])]
    [warning] = report_of(runs).warnings
    assert warning.startswith("unequal budgets on cartpole: 200 to 400 env steps, 1 run ended")
    assert "a_cartpole" in warning


def test_a_run_that_reached_its_score_has_no_budget_to_miss() -> None:
    runs = [run([1.0, 2.0], stopped=True), run([1.0, 2.0, 3.0, 4.0]), run([0.0, 1.0, 2.0, 3.0])]
    assert report_of(runs).warnings == ()
