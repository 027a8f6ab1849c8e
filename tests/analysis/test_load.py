"""Loading runs: their directories, settings, status and metrics."""

from __future__ import annotations

import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import border_cli
from border_cli.analysis.load import SavedRun, load_runs
from border_cli.config.check import check_settings
from border_cli.config.compose import compose
from border_cli.config.job import resolved_yaml
from border_cli.errors import CheckpointError, ConfigError, MissingPackage
from border_cli.registry import flat_settings
from border_cli.run.lock import RunLock
from tests.support.written_runs import write_run


def folders(*paths: Path) -> list[Path]:
    return [run.folder for run in load_runs(*paths)]


def test_runs_are_found_at_any_depth_and_nine_comes_before_ten(tmp_path: Path) -> None:
    jobs = [tmp_path / "sweep" / str(number) for number in (1, 9, 10)]
    for folder in (*jobs, tmp_path / "deep" / "a" / "b"):
        write_run(folder)
    assert folders(tmp_path) == [tmp_path / "deep" / "a" / "b", *jobs]
    assert folders(tmp_path / "sweep" / "9") == [jobs[1]]
    assert isinstance(border_cli.load_runs(str(tmp_path)), border_cli.analysis.load.SavedRuns)


def test_a_run_that_two_paths_lead_to_is_found_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "again").symlink_to(run)
    (tmp_path / "runs" / "up").symlink_to(tmp_path)  # must not be followed
    assert folders(tmp_path / "runs", tmp_path / "runs" / "a") == [run]


def test_a_run_json_of_another_program_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("{}", encoding="utf-8")
    assert folders(tmp_path) == []


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory"):
        load_runs(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is not a directory"):
        load_runs(tmp_path / "file")


def test_the_status_distinguishes_running_killed_and_lost_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", status="running", ended=None)
    assert SavedRun(folder).status == "killed"
    (folder / "run.json").write_text('{"status": "runn', encoding="utf-8")
    assert SavedRun(folder).status == "lost"
    with RunLock(folder):
        assert SavedRun(folder).status == "running"


def test_pickled_and_frozen_settings_contain_the_chosen_option_of_every_group(
    tmp_path: Path,
) -> None:
    config = compose("agent=rainbow", "env=cartpole")
    config.agent = replace(config.agent, gamma=0.9)
    copy = pickle.loads(pickle.dumps(check_settings(replace(config, quiet=True))))
    (tmp_path / "frozen.yaml").write_text(resolved_yaml(copy), encoding="utf-8")
    for source in (copy, compose("seed=4", config_dir=str(tmp_path), config_name="frozen")):
        settings = flat_settings(source)
        assert (settings["agent"], settings["env"]) == ("rainbow", "cartpole")
        assert settings["step_processor"] == "multi_step"  # chosen by the file of rainbow
        assert not any(name.endswith(".option") for name in settings)


METRICS = [
    {"opt_steps": 1, "env_steps": 10, "time_s": 0.5, "train/loss": 3.0},
    {"opt_steps": 2, "env_steps": 20, "time_s": 1.0, "eval/return": 7.0},
    {"opt_steps": 3, "env_steps": 30, "time_s": 1.5, "eval/return": None, "train/loss": 2.0},
    {"opt_steps": 4, "env_steps": 40, "time_s": 2.0, "eval/return": 9.0, "final": True},
]


def test_a_metric_comes_with_its_positions(tmp_path: Path) -> None:
    run = SavedRun(write_run(tmp_path / "a", metrics=METRICS))
    steps, values = run.metric("eval/return")  # the non-finite value is left out
    np.testing.assert_array_equal(steps, [20.0, 40.0])
    np.testing.assert_array_equal(values, [7.0, 9.0])
    np.testing.assert_array_equal(run.metric("train/loss", x="time_s")[0], [0.5, 1.5])
    with pytest.raises(ConfigError, match="unknown position 'steps'"):
        run.metric("eval/return", x="steps")


def test_a_misspelt_metric_is_refused_and_one_not_recorded_yet_is_empty(tmp_path: Path) -> None:
    first = {**METRICS[0], "actor/0/samples_per_sec": 1.0}
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(
        encoding="utf-8"
    )
    names = re.findall(r"^\| `([a-z]+/[a-z_/]+)` \|", documented, re.MULTILINE)
    assert "eval/return" in names
    run = SavedRun(write_run(tmp_path / "a", metrics=[first]))
    for name in ({*names} - {"train/loss"}) | {"eval/retrun", "actor/1/samples_per_sec"}:
        assert not run.metric(name)[1].size
    run = SavedRun(write_run(tmp_path / "b", metrics=METRICS))
    with pytest.raises(ConfigError, match="no metric 'eval/retrun', did you mean eval/return"):
        run.metric("eval/retrun")


def test_all_metrics_are_columns_with_nan_where_a_row_has_none(tmp_path: Path) -> None:
    columns = SavedRun(write_run(tmp_path / "a", metrics=METRICS)).metrics()
    assert list(columns) == ["opt_steps", "env_steps", "time_s", "train/loss", "eval/return"]
    np.testing.assert_array_equal(columns["train/loss"], [3.0, np.nan, 2.0, np.nan])
    assert SavedRun(tmp_path / "none").metrics() == {}


def test_without_pandas_the_pip_line_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    runs = load_runs(write_run(tmp_path / "a", metrics=METRICS))
    with pytest.raises(MissingPackage, match="pip install pandas"):
        runs.frame()


@pytest.mark.slow  # because the second stage of .ci/run has pandas
def test_frames_have_a_row_for_each_run_and_for_each_row_of_metrics(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    write_run(tmp_path / "a", {"seed": 1}, metrics=METRICS)
    write_run(tmp_path / "b", {"seed": 2, "agent.double": False})
    runs = load_runs(tmp_path)
    frame = runs.frame()
    assert frame["seed"].tolist() == [1, 2]
    assert frame["agent.double"].tolist() == [True, False]
    assert frame["best_score"].tolist() == [200.0, 200.0]
    assert runs[0].frame()["eval/return"].dropna().tolist() == [7.0, 9.0]
