"""border-plot of a study: what it draws and writes, and which hyperparameters matter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from studies import a_row, a_study

from border_cli.cli.plot import main
from border_cli.errors import CheckpointError
from border_cli.tune.report import importance, progress, report_on
from border_cli.tune.trials import TrialRow, trials_csv, write_study, write_trials

optuna = pytest.importorskip("optuna", minversion="5", reason='pip install "border-cli[tune]"')


def rows_of(trials: int) -> list[TrialRow]:
    """The score follows gamma; every third trial is pruned; tau is used by every second one."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(trials):
        gamma, pruned = rng.uniform(), number % 3 == 0
        values = {
            "gamma": f"{10 ** (3 * gamma - 3):.3g}",
            "tau": f"{rng.uniform():.3f}" if number % 2 else "",
            "kind": str(rng.choice(["relu", "tanh"])),
        }
        how = {"status": "pruned", "budget": 100, "steps": 200} if pruned else {}
        score = gamma - 1.0 * pruned
        rows.append(a_row(number, score, score, values=values, **how))
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, a_study())
    write_trials(tmp_path, [*rows_of(9), a_row(9)])
    return tmp_path


def test_the_hyperparameter_that_the_score_follows_is_the_most_important_one() -> None:
    rows = sorted(rows_of(60), key=lambda row: (-row.budget, -(row.score or 0.0)))
    found = importance(rows)
    assert next(iter(found)) == "gamma"
    assert found["gamma"] > 0.5
    assert set(found) == {"gamma", "tau", "kind"}
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_hyperparameter_with_one_value_has_no_importance_and_few_trials_give_none() -> None:
    rows = [a_row(n, 1.0 - n, values={"gamma": f"0.{n}", "tau": "0.1"}) for n in range(1, 9)]
    assert importance(rows) == {"gamma": 1.0, "tau": 0.0}
    assert importance(rows[1:]) == {}


def test_progress_is_the_best_complete_trial_over_the_cost_of_those_that_had_ended() -> None:
    rows = [
        a_row(3, 4.0, 6.0),  # 10 % of the full grid
        a_row(1, 9.0, 9.0, status="pruned", budget=100, steps=200),  # the first to end, 2 %
        a_row(2, 1.0, 3.0),
        a_row(4, 0.0, 0.0),
        a_row(5),
    ]
    points = [(12.0, 2.0), (22.0, 2.0), (22.0, 5.0), (32.0, 5.0), (32.0, 5.0)]
    assert [*map(pytest.approx, progress(a_study(), rows))] == points


def test_a_study_without_a_score_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path, a_study())
    with pytest.raises(CheckpointError, match="no trial of this study has a score yet"):
        report_on(tmp_path)


def test_a_study_whose_trials_are_all_at_a_rung_has_no_progress_yet(tmp_path: Path) -> None:
    write_study(tmp_path, a_study())
    waiting = [a_row(n, float(n), status="waiting", budget=100, ended="") for n in range(3)]
    write_trials(tmp_path, waiting)
    assert [view.title for view in report_on(tmp_path).views] == ["each trial"]


def test_in_the_terminal_there_are_charts_the_best_trials_and_the_importance(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(folder)])
    out, err = capsys.readouterr()
    assert "my_study: dqn on acrobot, at the full budget: best so far" in out
    assert "each trial: complete, pruned" in out
    assert "cost in % of the full grid (10,000 env steps)" in out
    assert "9 of 10 trials ended, 1 running, 3 pruned, 6 complete" in out
    assert "gamma" in out.rpartition("hyperparameter ")[2]
    assert err == ""


def test_files_are_written_by_their_suffix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffixes = (".png", ".svg", ".pdf", ".html", ".md", ".csv")
    asked = [word for each in suffixes for word in ("--out", str(folder / f"new/study{each}"))]
    main([str(folder), "--size", "12x4", *asked])
    text = {each: (folder / f"new/study{each}").read_bytes() for each in suffixes}
    assert text[".png"].startswith(b"\x89PNG")
    assert b"importance in % (PED-ANOVA)" in text[".svg"]
    assert text[".pdf"].startswith(b"%PDF")
    assert text[".html"].startswith(b"<!DOCTYPE html>")
    assert b"<svg" in text[".html"]
    assert b"<td>gamma</td>" in text[".html"]
    assert b"| trial | hyperparameters | status | score | cost |" in text[".md"]
    assert text[".csv"].decode() == trials_csv([*rows_of(9), a_row(9)])
    assert "│" not in capsys.readouterr().out  # no chart in the terminal


@pytest.mark.parametrize("more", [["--by", "gamma"], ["--x", "time_s"], ["--hold"], ["."]])
def test_what_is_meant_for_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), *more])
    err = capsys.readouterr().err
    assert "is a study of border-tune, which is plotted alone, with no options but --out" in err


def test_without_optuna_everything_but_the_importance_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    main([str(folder), "--out", str(folder / "study.png")])
    out, err = capsys.readouterr()
    assert "9 of 10 trials ended" in out
    assert "the importance of hyperparameters needs a package that is not installed: pip" in err
    assert 'pip install "border-cli[tune]"' in err
