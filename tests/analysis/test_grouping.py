"""Grouping of runs: settings, labels, excluded runs and warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from border_cli.analysis.grouping import Grouped, group_runs
from border_cli.analysis.load import load_runs
from border_cli.errors import ConfigError
from tests.support.written_evaluations import evaluated_run, two_groups


def group_folder(root: Path, **options: Any) -> Grouped:
    return group_runs(load_runs(root), **options)


def groups(result: Grouped) -> dict[str, int]:
    names = [curve.group for curve in result.curves]
    return {name: names.count(name) for name in names}


def test_by_default_what_differs_makes_the_groups(tmp_path: Path) -> None:
    result = group_folder(two_groups(tmp_path))
    assert (result.by, groups(result)) == (("agent.double",), {"true": 3, "false": 3})
    assert result.warnings == ()


def test_a_chosen_option_hides_the_settings_that_it_determines(tmp_path: Path) -> None:
    for agent, extra in (("dqn", {}), ("sac", {"agent.gamma": 0.9, "agent.tau": 0.1})):
        for seed in range(2):
            settings = {"agent": agent, **extra}
            evaluated_run(tmp_path / f"{agent}{seed}", [1.0], seed=seed, settings=settings)
    result = group_folder(tmp_path)
    assert (result.by, groups(result)) == (("agent",), {"dqn": 2, "sac": 2})


def test_seeds_alone_are_one_group_named_by_the_agent(tmp_path: Path) -> None:
    for seed in range(2):
        evaluated_run(tmp_path / str(seed), [1.0], seed=seed)
    assert (group_folder(tmp_path).by, groups(group_folder(tmp_path))) == (("agent",), {"dqn": 2})


def test_several_settings_are_named_in_the_label(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "run", [1.0], settings={"agent.hidden": [64, 64], "agent.seed": None})
    by = ["agent", "agent.double", "agent.hidden", "agent.seed"]
    assert list(groups(group_folder(tmp_path, by=by))) == [
        "dqn, double=true, hidden=[64,64], seed=null"
    ]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"by": ["agent.duble"]}, "--by: no run has the setting .*did you mean agent.double"),
        ({"by": ["agnt"]}, "--by: no run has the setting .*did you mean agent"),
        ({"y": "eval/retur"}, "--y: unknown metric 'eval/retur', did you mean eval"),
        ({"references": {"cartpol": (0.0, 1.0)}}, "--reference: unknown env 'cartpol', did you"),
    ],
)
def test_an_unknown_name_is_refused(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        group_folder(two_groups(tmp_path), **asked)


def test_a_run_without_values_is_left_out_by_name(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "empty", [])
    evaluated_run(tmp_path / "whole", [1.0], seed=1)
    result = group_folder(tmp_path)
    assert groups(result) == {"dqn": 1}
    [warning] = result.warnings
    assert "empty) left out: no eval/return" in warning


def test_a_damaged_run_is_left_out_by_name(tmp_path: Path) -> None:
    for number in range(2):
        evaluated_run(tmp_path / f"run{number}", [1.0], seed=number)
    (tmp_path / "run1" / "metrics.jsonl").write_text('{"eval/return"\n{}\n')
    result = group_folder(tmp_path)
    assert groups(result) == {"dqn": 1}
    [warning] = result.warnings
    assert warning.startswith(f"left out: {tmp_path / 'run1'}/metrics.jsonl, line 1: not JSON")
    with pytest.raises(ConfigError, match=r"0 runs, .*; left out: .*, line 1: not JSON"):
        group_folder(tmp_path / "run1")


def test_what_differs_within_a_group_is_named(tmp_path: Path) -> None:
    two_groups(tmp_path / "slow", **{"agent.gamma": 0.9})
    two_groups(tmp_path / "fast")
    result = group_folder(tmp_path, by=["agent.double"])
    assert len(result.warnings) == 2
    assert "true on cartpole mixes runs that differ in agent.gamma" in result.warnings[1]
    assert group_folder(tmp_path, by=["agent.double", "agent.gamma"]).warnings == ()


def test_environments_have_a_panel_each_unless_they_are_compared(tmp_path: Path) -> None:
    for env in ("cartpole", "acrobot"):
        evaluated_run(tmp_path / env, [1.0], settings={"env": env, "env.id": env})
    assert {curve.env for curve in group_folder(tmp_path).curves} == {"cartpole", "acrobot"}
    compared = group_folder(tmp_path, by=["env"])
    assert {curve.env for curve in compared.curves} == {"acrobot, cartpole"}
    assert set(groups(compared)) == {"cartpole", "acrobot"}


def test_curves_are_drawn_over_what_was_asked_for(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "run", [1.0, 2.0])
    for x, steps in (("env_steps", [100, 200]), ("opt_steps", [50, 100]), ("time_s", [0.25, 0.5])):
        result = group_folder(tmp_path, x=x)
        [curve] = result.curves
        assert (result.x, curve.x.tolist()) == (x, steps)


def test_offline_runs_are_drawn_over_updates(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "run", [1.0, 2.0], every=0)
    assert group_folder(tmp_path).x == "opt_steps"
    with pytest.raises(ConfigError, match="--x must be opt_steps or time_s: these runs stepped"):
        group_folder(tmp_path, x="env_steps")


def test_normalised_scores_come_from_references_or_from_the_run(tmp_path: Path) -> None:
    folder = evaluated_run(tmp_path / "run", [10.0, 30.0])
    [curve] = group_folder(tmp_path, references={"cartpole": (10.0, 50.0)}).curves
    assert curve.normalized == 50.0
    with (folder / "metrics.jsonl").open("a") as file:
        row = {"opt_steps": 150, "env_steps": 300, "eval/return": 30.0}
        file.write(json.dumps({**row, "eval/normalized_score": 25.0}) + "\n")
    assert group_folder(tmp_path).curves[0].normalized == 25.0
    assert group_folder(tmp_path, y="eval/return", by=["agent"]).curves[0].x.tolist() == [
        100,
        200,
        300,
    ]


def test_of_two_values_at_one_step_the_last_counts(tmp_path: Path) -> None:
    folder = evaluated_run(tmp_path / "run", [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"opt_steps": 100, "env_steps": 200, "eval/return": 5.0}\n')
    [curve] = group_folder(tmp_path).curves
    assert (curve.x.tolist(), curve.y.tolist()) == ([100, 200], [1.0, 5.0])
