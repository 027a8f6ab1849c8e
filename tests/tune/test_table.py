"""What a study shows while it runs, and what it says at its end."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from studies import a_row, a_study

from border_cli.sweep.panel import JobView
from border_cli.tune.table import StudyPanel, counts, print_outcome

ESCAPES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
PROGRESS = {
    "phase": "training",
    "opt_steps": 1200,
    "fraction": 0.6,
    "left_s": 33.0,
    "score": -90.2,
    "best": -88.0,
    "updates_per_sec": 812.3,
}


class Seconds:
    """A clock that a test sets, in the place of `time.monotonic`."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    made = Seconds()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def test_without_a_terminal_events_are_said_at_once_and_a_summary_every_30_seconds(
    capsys: pytest.CaptureFixture[str], clock: Seconds
) -> None:
    study, rows = a_study(), [a_row(0, -80.0, -82.0), a_row(1)]
    with StudyPanel(study) as panel:
        panel.event("trial 1 \x1b[31mpruned")
        assert capsys.readouterr().out.endswith("] trial 1 \\x1b[31mpruned\n")
        clock.now_s += 29.0
        panel.show([], rows)
        assert capsys.readouterr().out == ""
        clock.now_s += 11.0
        panel.show([], rows)
    assert capsys.readouterr().out == (
        "1 of 10 trials ended, 1 complete, 1 running, cost 10 % of the full grid, 0:40\n"
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_runs_and_the_best_trials_are_shown_in_its_width(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Seconds,
    columns: int,
) -> None:
    for name, value in {"COLUMNS": str(columns), "LINES": "16", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    (tmp_path / "run.json").write_text(json.dumps({"status": "running", "progress": PROGRESS}))
    others = [JobView(n, "seed-0", tmp_path / "none") for n in (8, 9)]  # no room for the last
    settings = [f"agent.gamma={'0.99' * 30}"]
    rows = [a_row(n, -80.0 - n, -82.0 - n, settings=settings) for n in range(5)]
    with StudyPanel(a_study()) as panel:
        clock.now_s += 1.0
        panel.show([JobView(7, "seed-1", tmp_path), *others], rows)
        lines = ESCAPES.sub("", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= columns
    words = [line.split() for line in lines]
    figures = ["-88.0", "0:33"] if columns < 80 else ["-90.2", "-88.0", "812", "0:33"]
    shown = ["7", "seed-1", "training", *([] if columns < 80 else ["1,200"]), "60", "%", *figures]
    assert shown in words
    assert ["8", "seed-0", "starting"] in words
    best = next(each for each in words if each[:1] == ["0"])
    # Deviation sqrt(2): half the interval of two seeds is 12.71 * sqrt(2) / sqrt(2).
    assert best[:4] == ["0", "-81.00", "[-93.71,", "-68.29]"]
    assert best[4] == "complete"
    assert best[5].startswith("gamma=0.99")
    assert best[5].endswith("…")
    assert "".join(each[0] for each in words if each and each[0].isdigit()) == "780125"
    assert ["Ctrl-C", "saves", "all", "running", "trials"] in words


def test_a_summary_names_the_states_that_have_trials() -> None:
    waiting = a_row(0, -5.0, -7.0, status="waiting", ended="", budget=100)
    assert counts(a_study(), [a_row(1), waiting]) == (
        "0 of 10 trials ended, 1 running, 1 waiting, cost 2 % of the full grid"
    )


def test_the_end_names_the_winner_its_score_on_fresh_seeds_and_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [a_row(0, -90.0, -91.0), a_row(1, -80.0, settings=["agent.gamma=0.9"])]
    print_outcome(tmp_path / "my study", a_study(), rows, [5.0, 15.0, 25.0])
    out = capsys.readouterr().out
    assert ["1", "-80.00", "complete", "gamma=0.9"] in [*map(str.split, out.splitlines())]
    assert "best: trial 1: gamma=0.9\n" in out
    # Mean 15, deviation 10: half the interval is 4.303 * 10 / sqrt(3).
    assert "winner    15.00 [-9.84, 39.84] over 3 fresh seeds\n" in out
    assert "settings  'my study'/best.yaml\n" in out
    assert "border-plot 'my study'\n" in out
    print_outcome(tmp_path, a_study(), [], [])
    out = capsys.readouterr().out
    assert "best" not in out.lower()
    assert "border-plot" in out
