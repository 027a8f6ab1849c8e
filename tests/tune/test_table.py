"""What a study shows while it runs, and what it says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies import a_row, a_study

from border_cli.recorder.terminal import make_console
from border_cli.tune.table import RunView, StudyPanel, best_table, counts, print_outcome

PROGRESS = {
    "phase": "training",
    "opt_steps": 1200,
    "fraction": 0.6,
    "left_s": 33.0,
    "score": -90.2,
    "best": -88.0,
    "updates_per_sec": 812.3,
}


class Time:
    """Seconds that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def a_run(folder: Path) -> RunView:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"status": "done", "progress": PROGRESS}))
    return RunView(7, 1, 500, folder)


def test_without_a_terminal_events_are_said_at_once_and_a_summary_every_30_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    study, clock = a_study(), Time()
    before = [a_row(0, -80.0, -82.0), a_row(1)]
    with StudyPanel(clock_s=clock) as panel:
        panel.show(study, [], before)
        panel.event("trial 1 pruned")
        assert capsys.readouterr().out.endswith("] trial 1 pruned\n")
        clock.now_s = 29.0
        panel.show(study, [], before)
        assert capsys.readouterr().out == ""
        clock.now_s = 40.0
        pruned = a_row(1, -100.0, -99.0, status="pruned", budget=100, steps=200)
        panel.show(study, [], [before[0], pruned])
    # One trial ended in 40 seconds, and 8 of 10 are left.
    assert capsys.readouterr().out == (
        "2 of 10 trials ended, 1 pruned, 1 complete, best -81.0 (trial 0), cost 12 % of the full "
        "grid, 0:40 elapsed, about 5:20 left\n"
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_runs_and_the_best_trials_are_shown_in_its_width(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    clock = Time()
    rows = [a_row(n, -80.0 - n, -82.0 - n, values={"agent.gamma": "0.99" * 30}) for n in range(5)]
    with StudyPanel(clock_s=clock) as panel:
        clock.now_s = 1.0
        panel.show(a_study(), [a_run(tmp_path / "a"), RunView(8, 0, 100, tmp_path / "none")], rows)
        shown = capsys.readouterr().out
    assert shown.count("training") == 1
    assert "60 %" in shown
    assert "0:33" in shown
    assert "starting" in shown
    assert ("812" in shown) == (columns >= 80)
    assert "gamma=0.99" in shown
    assert "…" in shown
    assert "Ctrl-C saves all running trials" in shown
    assert all(len(line) <= columns for line in shown.splitlines() if "\x1b" not in line)


def test_a_summary_names_states_that_have_trials_and_no_best_one_before_there_is_a_score() -> None:
    waiting = a_row(0, -5.0, -7.0, status="waiting", ended="", budget=100, steps=200)
    assert counts(a_study(), [a_row(1)]) == (
        "0 of 10 trials ended, 1 running, cost 0 % of the full grid"
    )
    assert counts(a_study(), [a_row(1), waiting]) == (
        "0 of 10 trials ended, 1 waiting, 1 running, best -6.0 (trial 0), cost 2 % of the full grid"
    )


def test_a_score_has_its_interval_over_seeds_and_values_that_a_condition_left_out_are_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {"agent.gamma": "0.99", "agent.tau": "", "one_minus_gamma": "1e-3"}
    make_console().print(best_table([a_row(3, 5.0, 15.0, 25.0, values=values), a_row(4, 2.0)]))
    lines = capsys.readouterr().out.splitlines()
    # Mean 15, deviation 10: half the interval is 4.303 * 10 / sqrt(3).
    assert "3   15.00 [-9.84, 39.84]   gamma=0.99 one_minus_gamma=1e-3" in lines[3]
    assert lines[4].split() == ["4", "2.00"]  # one seed has no interval


def test_the_end_names_the_winner_its_score_on_fresh_seeds_and_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [a_row(0, -90.0, -91.0), a_row(1, -80.0, -81.0, values={"gamma": "0.9"})]
    print_outcome(tmp_path / "my study", a_study(), rows, {100: 5.0, 101: 15.0, 102: 25.0})
    out = capsys.readouterr().out
    assert "winner    trial 1: gamma=0.9\n" in out
    assert "score     15.00 [-9.84, 39.84] over 3 fresh seeds\n" in out
    assert "settings  my study/best.yaml\n" in out
    assert "border-plot 'my study'\n" in out
    assert "cp 'my study'/best.yaml conf/experiment/\n" in out
    assert "border-train -cd conf experiment=best agent=dqn env=acrobot\n" in out
    print_outcome(tmp_path / "my study", a_study(), rows, {})
    out = capsys.readouterr().out
    assert "winner" not in out
    assert "best.yaml" not in out
    assert "border-plot 'my study'\n" in out
