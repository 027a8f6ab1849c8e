"""border-plot of a study: what it draws and writes, and which hyperparameters matter."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from studies import a_row, a_study

from border_cli.cli.plot import main
from border_cli.tune.report import importance, points
from border_cli.tune.trials import TrialRow, ranked, write_study, write_trials

pytest.importorskip("optuna", minversion="5", reason='pip install "border-cli[tune]"')
PRUNED = {"status": "pruned", "budget": 100}


def rows_of(trials: int) -> list[TrialRow]:
    """The score follows gamma; every third trial is pruned; tau is used by every second one."""
    rows = []
    for number, (gamma, tau) in enumerate(np.random.default_rng(3).uniform(size=(trials, 2))):
        settings = [f"gamma={gamma:.3g}", "kind=relu", *[f"tau={tau:.3f}"][: number % 2]]
        rows.append(a_row(number, gamma, settings=settings, **({} if number % 3 else PRUNED)))
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, a_study(name="$my\x1b[31m_study$"))
    write_trials(tmp_path, rows_of(9))
    return tmp_path


def test_the_hyperparameter_that_the_score_follows_is_the_most_important_one() -> None:
    rows = ranked(rows_of(60))
    found = importance(rows)
    assert list(found) == ["gamma", "tau", "kind"]
    assert found["gamma"] > 0.5
    assert found["kind"] == 0.0  # it has one value
    assert importance(rows[:7]) == {}


def test_scores_are_over_what_the_study_had_cost_with_the_best_at_the_full_budget() -> None:
    rows = [
        a_row(0, 7.0, status="waiting", budget=100, ended=""),  # another 2 %, last
        a_row(3, 5.0),  # 10 % of the full grid
        a_row(1, 9.0, **PRUNED),  # the first to end, 2 %
        a_row(2, 2.0),
        a_row(4, 3.0),
        a_row(5),
    ]
    assert [np.round(each).tolist() for each in points(a_study(), rows)] == [
        [[12, 22, 32], [2, 5, 5]],
        [[12, 22, 32], [2, 5, 3]],
        [[2, 34], [9, 7]],
    ]


def test_in_the_terminal_there_are_a_chart_the_best_trials_and_the_importance(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main([str(folder)])
    out = capsys.readouterr().out
    assert "cost in % of all trials at 500 env steps" in out
    assert "9 of 10 trials, cost 66 % of the full grid: 6 complete, 3 pruned\n" in out
    assert re.search(r"importance +\d\d%  gamma\n +\d+%  tau\n", out)


def test_files_are_written_by_their_suffix(folder: Path) -> None:
    for suffix, begin in {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}.items():
        file = folder / f"new/study{suffix}"
        main([str(folder), "--size", "12x4", "--out", str(file)])
        assert file.read_bytes().startswith(begin)


@pytest.mark.parametrize("more", ["--by=gamma", "--hold", ".", "--out=a.md"])
def test_what_is_meant_for_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), more])
    assert "which is plotted alone, with no options but --out" in capsys.readouterr().err


def test_before_any_score_there_is_an_empty_chart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trials(folder, [a_row(0)])
    main([str(folder)])
    assert "1 of 10 trials, cost 0 % of the full grid: 1 running\n" in capsys.readouterr().out
    main([str(folder), "--out", str(folder / "a.png")])


def test_without_optuna_the_command_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit):
        main([str(folder)])
    assert 'install "border-cli[tune]"' in capsys.readouterr().err
