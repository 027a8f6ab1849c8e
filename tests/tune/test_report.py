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


def rows_of(trials: int) -> list[TrialRow]:
    """The score follows gamma; every third trial is pruned; tau is used by every second one."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(trials):
        gamma, tau, kind = rng.uniform(), rng.uniform(), rng.choice(["relu", "tanh"])
        settings = [f"agent.gamma={10 ** (3 * gamma - 3):.3g}", f"agent.kind={kind}"]
        settings += [f"agent.tau={tau:.3f}"] if number % 2 else []
        how = {"status": "pruned", "budget": 100} if number % 3 == 0 else {}
        rows.append(a_row(number, gamma, gamma, settings=settings, **how))
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, *rows_of(9), a_row(9))


def written(folder: Path, *rows: TrialRow) -> Path:
    write_study(folder, a_study(name="$my\x1b[31m_study$"))
    write_trials(folder, rows)
    return folder


def test_the_hyperparameter_that_the_score_follows_is_the_most_important_one() -> None:
    found = importance(ranked(rows_of(60)))
    assert next(iter(found)) == "agent.gamma"
    assert found["agent.gamma"] > 0.5
    assert set(found) == {"agent.gamma", "agent.tau", "agent.kind"}
    assert sum(found.values()) == pytest.approx(1.0)


def test_values_that_pruned_trials_alone_have_count_too_and_few_trials_give_none() -> None:
    """The best quarter of the trials has 9, and all others, which were pruned, have 0.1 to 0.6."""
    ends = [f"0.{n}" if n < 7 else "9" for n in range(1, 9)]
    how = {"status": "pruned", "budget": 100}
    rows = [
        a_row(n, float(n), settings=[f"a={end}", "b=0.1"], **(how if end != "9" else {}))
        for n, end in enumerate(ends)
    ]
    assert importance(ranked(rows)) == {"a": 1.0, "b": 0.0}
    assert importance(ranked(rows)[1:]) == {}


def test_scores_are_over_what_the_study_had_cost_and_the_best_complete_one_is_in_steps(
    tmp_path: Path,
) -> None:
    rows = [
        a_row(0, 7.0, 7.0, status="waiting", budget=100, ended=""),  # another 2 %, last
        a_row(3, 4.0, 6.0),  # 10 % of the full grid
        a_row(1, 9.0, 9.0, status="pruned", budget=100),  # the first to end, 2 %
        a_row(2, 1.0, 3.0),
        a_row(4, 0.0, 0.0),
        a_row(5),
    ]
    found = StudyReport(written(tmp_path, *rows)).points()
    assert {name: [*map(pytest.approx, points)] for name, points in found.items()} == {
        "best so far": [(12, 2), (22, 2), (22, 5), (32, 5), (34, 5), (34, 5)],
        "complete": [(12, 2), (22, 5), (32, 0)],
        "pruned": [(2, 9)],
        "waiting": [(34, 7)],
    }


def test_in_the_terminal_there_are_a_chart_the_best_trials_and_the_importance(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main([str(folder)])
    out, err = capsys.readouterr()
    assert "$my\\x1b[31m_study$: dqn on acrobot\n" in out
    assert "- best so far   o complete   x pruned\n" in out
    assert "cost in % of all trials at 500 env steps" in out
    assert "9 of 10 trials ended, 6 complete, 3 pruned, 1 running, cost 66 % of the full" in out
    assert "agent.gamma" in out.rpartition("hyperparameter ")[2]
    assert err == ""
    wide = [line for line in out.splitlines() if len(line) > 60]
    assert [line.partition(":")[0].partition(" of")[0] for line in wide] == ["9", "Importance"]


def test_a_study_whose_trials_all_wait_has_a_chart_and_one_without_a_score_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(written(tmp_path, a_row(0, 1.0, status="waiting", ended="", budget=100)))])
    assert "\n+ waiting\n" in capsys.readouterr().out
    write_trials(tmp_path, [a_row(0)])
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "no trial of this study has a score yet" in capsys.readouterr().err


def test_files_are_written_by_their_suffix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    asked = [word for each in begins for word in ("--out", str(folder / f"new/study{each}"))]
    main([str(folder), "--size", "12x4", *asked])
    for suffix, begin in begins.items():
        assert (folder / f"new/study{suffix}").read_bytes().startswith(begin)
    drawn = (folder / "new/study.svg").read_text(encoding="utf-8")
    for text in ("agent.gamma", "best so far", "importance in %"):
        assert text in drawn
    assert "│" not in capsys.readouterr().out  # no chart in the terminal


@pytest.mark.parametrize(
    "more", [["--by", "gamma"], ["--x", "time_s"], ["--hold"], ["."], ["--out", "a.md"]]
)
def test_what_is_meant_for_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), *more])
    err = capsys.readouterr().err
    assert "is a study of border-tune, which is plotted alone, with no options but --out" in err


def test_without_optuna_the_command_names_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit):
        main([str(folder)])
    assert 'pip install "border-cli[tune]"' in capsys.readouterr().err
