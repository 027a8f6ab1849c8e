"""The output of a study: its progress while it runs, and its final summary."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from border_cli.sweep.panel import JobView
from border_cli.tune.table import StudyPanel, print_best
from tests.support.studies import a_row, a_study


def test_without_a_terminal_events_are_said_at_once_and_a_summary_every_30_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = a_row(2, -5.0, -7.0, status="waiting", ended="", budget=100)
    rows, times = [a_row(0, -80.0, -82.0), a_row(1), waiting], [0.0, 29.0, 40.0]
    monkeypatch.setattr(time, "monotonic", lambda: times.pop(0))
    with StudyPanel() as panel:
        panel.event("trial 1 \x1b[31mpruned")
        panel.show([], a_study(), rows)
        assert capsys.readouterr().out.endswith("] trial 1 \\x1b[31mpruned\n")
        panel.show([], a_study(), rows)
    assert capsys.readouterr().out == (
        "3 of 10 trials, cost 12 % of the full grid: 1 complete, 1 running, 1 waiting  0:40\n"
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_runs_and_the_best_trials_are_shown_in_its_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "15")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    runs = [JobView(n, "seed-1", Path("none")) for n in (7, 8, 9)]  # the last one does not fit
    rows = [a_row(0, -80.0, -82.0, settings=["a.b=" + "9 " * 99])] * 5
    with StudyPanel() as panel:
        panel._shown_s -= 1.0
        panel.show(runs, a_study(), rows)
        out = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= columns
    words = " ".join(out.split())
    assert "7 seed-1 starting 8 seed-1 starting and 1 more trial score" in words
    # The deviation is sqrt(2): half the interval of two seeds is 12.71 * sqrt(2) / sqrt(2).
    assert "0 -81.00 [-93.71, -68.29] complete b=9" in words


def test_the_end_names_the_best_trials_with_all_values_of_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [a_row(0, -90.0), a_row(1, -80.0, settings=["agent.gamma=0.9"])]
    print_best(a_study(), rows, ("winner", "-81"))
    out = capsys.readouterr().out
    assert "best    trial 1: gamma=0.9\nwinner  -81\n" in out
