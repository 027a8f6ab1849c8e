"""`study.json` and `trials.json`: writing and reading them, damaged files, ranking of trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.errors import CheckpointError
from border_cli.tune.trials import rank_trials, read_study, read_trials, write_study, write_trials
from tests.support.studies import a_row, a_study


def test_a_study_and_its_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    study = a_study(overrides=["agent=dqn", "agent.hidden=[64, 64]"])
    rows = [a_row(1, 1 / 3, -2e-300, reason='line, "one"\nline two'), a_row(2)]
    write_study(tmp_path, study)
    write_trials(tmp_path, rows)
    assert read_study(tmp_path) == study
    assert read_trials(tmp_path) == rows


@pytest.mark.parametrize("text", ["", "{", "3", "[3]", '{"name": "x"}'])
def test_a_damaged_file_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    for name, read in (("study.json", read_study), ("trials.json", read_trials)):
        if text:
            (tmp_path / name).write_text(text)
        with pytest.raises(CheckpointError, match=f"{name} cannot be read: "):
            read(tmp_path)


def test_trials_that_were_trained_longest_come_first_and_failed_ones_never() -> None:
    rows = [
        a_row(0, -90.0),
        a_row(1, -80.0),
        a_row(2, -10.0, budget=100),
        a_row(3, -5.0, status="fail"),
        a_row(4),
    ]
    assert [row.number for row in rank_trials(rows)] == [1, 0, 2]
