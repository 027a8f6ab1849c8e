"""border-plot of a study: what it draws and writes, and which hyperparameters matter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from studies import a_row, a_study

from border_cli.cli.plot import main
from border_cli.tune.report import StudyReport, importance
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


def test_scores_are_over_what_the_study_had_cost_and_the_best_complete_one_is_in_steps(
    folder: Path,
) -> None:
    rows = [
        a_row(0, 7.0, status="waiting", budget=100, ended=""),  # another 2 %, last
        a_row(3, 5.0),  # 10 % of the full grid
        a_row(1, 9.0, **PRUNED),  # the first to end, 2 %
        a_row(2, 2.0),
    ]
    write_trials(folder, rows)
    found = StudyReport(folder).points()
    assert {name: str(np.round(each).astype(int).tolist()) for name, each in found.items()} == {
        "best so far": "[[12, 2], [22, 2], [22, 5], [24, 5]]",
        "complete": "[[12, 2], [22, 5]]",
        "pruned": "[[2, 9]]",
        "waiting": "[[24, 7]]",
    }


def test_in_the_terminal_there_are_a_chart_the_best_trials_and_the_importance(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main([str(folder)])
    out = capsys.readouterr().out
    assert "$my\\x1b[31m_study$: dqn on acrobot\n" in out
    assert "- best so far   o complete   x pruned\n" in out
    assert "9 of 10 trials ended, 6 complete, 3 pruned, cost 66 % of the full grid" in out
    assert "gamma" in out.rpartition("hyperparameter ")[2]


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


def test_without_scores_and_without_optuna_the_command_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for rows, said in ((rows_of(9), 'install "border-cli[tune]"'), ([a_row(0)], "has a score yet")):
        write_trials(folder, rows)
        with pytest.raises(SystemExit):
            main([str(folder)])
        assert said in capsys.readouterr().err
