"""Status lines of a sweep without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.sweep import panel
from border_cli.sweep.panel import JobView, SweepPanel


def test_without_a_terminal_a_line_counts_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel, "SAY_EVERY_S", 0.0)
    views = [JobView(number, f"seed={number}", tmp_path / str(number)) for number in range(2)]
    with SweepPanel(3, quiet=False) as shown:
        shown.show(views, num_waiting=1)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("0 of 3 jobs done  2 running  1 waiting")
