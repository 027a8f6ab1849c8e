"""`border-plot` for studies: progress of the best trial, and importance of hyperparameters."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from border_cli.cli.plot import main
from border_cli.tune.report import importance, progress
from border_cli.tune.trials import TrialRow, write_study, write_trials
from tests.support.studies import a_row, a_study

pytest.importorskip("optuna", minversion="5", reason='pip install "border-cli[tune]"')
PRUNED = {"status": "pruned", "budget": 100}


def rows_of(trials: int) -> list[TrialRow]:
    """Trials whose score increases with gamma; every third one is pruned."""
    rows = []
    for number, (gamma, tau) in enumerate(np.random.default_rng(3).uniform(size=(trials, 2))):
        params = {"agent.gamma": 0.9 + 0.09 * gamma, "agent.tau": 0.1 + 0.8 * tau}
        scores = gamma, gamma + 0.1
        rows.append(a_row(number, *scores, params=params, **({} if number % 3 else PRUNED)))
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, a_study(name="$my_study$"))
    write_trials(tmp_path, rows_of(9))
    return tmp_path


def test_the_hyperparameter_that_the_score_follows_is_the_most_important_one() -> None:
    importances = importance(a_study(), rows_of(60))
    assert [*importances] == ["agent.gamma", "agent.tau"]
    assert importances["agent.gamma"] > 0.5
    assert importance(a_study(), rows_of(7)) == {}


def test_each_seed_has_the_score_of_the_best_trial_so_far_over_the_steps_of_all_trials() -> None:
    rows = [
        a_row(0, 7.0, 8.0, status="waiting", budget=100, ended=""),  # not ended: comes last
        a_row(3, 5.0, 6.0),  # full budget: 2 * 500 steps
        a_row(1, 9.0, 9.0, **PRUNED),  # ended first, after 2 * 100 steps
        a_row(2, 2.0, 3.0),
        a_row(4, 6.0, 7.0),
        a_row(5),
    ]
    first, second = progress(Path("S/my_study"), a_study(), rows)
    assert (first.env, first.group, first.name) == ("acrobot", "S/my_study", "seed 0")
    assert first.x.tolist() == second.x.tolist() == [200, 1200, 2200, 3200, 3400]
    assert first.y.tolist() == [9, 2, 5, 6, 6]
    assert second.y.tolist() == [9, 3, 6, 7, 7]


def test_a_failed_trial_is_never_the_best_but_its_steps_count() -> None:
    rows = [
        a_row(0, 9.0, status="fail", budget=100, ended="2026-01-01 00:00:00"),
        a_row(1, 5.0, ended="2026-01-02 00:00:00"),
        a_row(2, 9.0, status="fail", budget=100, ended="2026-01-03 00:00:00"),
        a_row(3, 6.0, ended="2026-01-04 00:00:00"),
    ]
    (curve,) = progress(Path("S/my_study"), a_study(), rows)
    assert curve.x.tolist() == [1200, 1400, 2400]
    assert curve.y.tolist() == [5, 5, 6]
    assert progress(Path("S/my_study"), a_study(), rows[:1]) == []


def test_in_the_terminal_there_are_a_chart_the_best_trials_and_the_importance(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    main([str(folder)])
    out = capsys.readouterr().out
    assert "acrobot: score of the best trial" in out
    assert "env steps" in out
    assert "9 of 10 trials, cost 66 % of the full grid: 6 complete, 3 pruned\n" in out
    assert re.search(r"importance +\d\d%  agent.gamma\n +\d+%  agent.tau\n", out)


def test_two_studies_of_one_name_are_compared_in_each_kind_of_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (other := tmp_path / "other").mkdir()
    write_study(other, a_study(name="$my_study$"))
    write_trials(other, rows_of(3))
    for suffix, begin in {".png": b"\x89PNG", ".pdf": b"%PDF", ".csv": b"env,group,"}.items():
        file = folder / f"new/study{suffix}"
        main([str(folder), str(other), "--out", str(file)])
        assert file.read_bytes().startswith(begin)
    assert {str(folder), str(other)} < {*re.split(r"[,\n]", file.read_text())}
    assert "border-plot: warning: unequal budgets on acrobot" in capsys.readouterr().err


def test_studies_of_other_units_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (other := tmp_path / "other").mkdir()
    write_study(other, a_study(unit="max_opt_steps"))
    write_trials(other, rows_of(3))
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), str(other)])
    assert "studies in env steps and studies in updates need separate" in capsys.readouterr().err


@pytest.mark.parametrize("more", ["--by=gamma", "--failed", "--x=opt_steps"])
def test_what_is_meant_for_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), more])
    option = more[2:].partition("=")[0]
    assert f"is a study of border-tune: leave out --{option}" in capsys.readouterr().err


def test_before_any_score_there_is_no_chart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trials(folder, [a_row(0)])
    main([str(folder)])
    assert "1 of 10 trials, cost 0 % of the full grid: 1 running\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), "--out", str(folder / "a.png")])
    assert "no trial has a score to draw yet" in capsys.readouterr().err


def test_without_optuna_the_command_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit):
        main([str(folder)])
    assert 'install "border-cli[tune]"' in capsys.readouterr().err
