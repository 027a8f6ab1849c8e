"""Status lines of a sweep without a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from border_cli.sweep import panel
from border_cli.sweep.panel import JobView, SweepPanel

PROGRESS = {
    "phase": "learning",
    "opt_steps": 3_000,
    "fraction": 0.3,
    "score": 45.5,
    "best": 50.0,
    "updates_per_sec": 900.0,
    "left_s": 65.0,
}


def test_each_running_job_has_a_line_with_its_updates_score_and_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel, "SAY_EVERY_S", 0.0)
    for number, record in enumerate(({"progress": PROGRESS}, {})):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "run.json").write_text(json.dumps(record))
    views = [JobView(number, f"seed={number}", tmp_path / str(number)) for number in range(2)]
    with SweepPanel(3, quiet=False) as shown:
        shown.show(views, num_waiting=1)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("0 of 3 jobs done  2 running  1 waiting")
    assert lines == [
        "  job 0 (seed=0): learning  updates 3,000  done 30 %  score 45.5  left 1:05",
        "  job 1 (seed=1): starting",
    ]
