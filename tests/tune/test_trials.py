"""study.json and trials.csv: what was written is read again, and which trials are ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies import a_row, a_study

from border_cli.errors import CheckpointError
from border_cli.tune.trials import (
    ranked,
    read_study,
    read_trials,
    trials_csv,
    write_study,
    write_trials,
)


def test_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    study = a_study(overrides=("agent=dqn", "agent.hidden=[64, 64]"))
    write_study(tmp_path, study)
    assert read_study(tmp_path) == study


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', '{"budgets": 3}'])
def test_what_is_no_study_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    if text:
        (tmp_path / "study.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"study\.json is missing, damaged, or not"):
        read_study(tmp_path)


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_trials(tmp_path) == []  # before the first is written
    values = {"gamma": "0.99", "n_steps": "", "a name, odd": '[1, "2"]'}
    rows = [
        a_row(0, values=values),
        a_row(1, 1 / 3, -2e-300, values=values, settings=("agent.hidden=[64, 64]", "a='b c'")),
        a_row(2, status="failed", reason='line, "one"\nline two', values=values),
    ]
    write_trials(tmp_path, reversed(rows))
    assert read_trials(tmp_path) == rows
    write_trials(tmp_path, [])
    assert read_trials(tmp_path) == []


def test_hyperparameters_are_the_last_columns_whichever_trial_has_them() -> None:
    rows = [a_row(0, 1.0, 3.0, values={"gamma": "0.9"}), a_row(1, values={"n_steps": "3"})]
    head, first, second = trials_csv(rows).splitlines()
    assert head.startswith("number,status,score,budget,steps,seconds,ended,reason,scores,")
    assert head.endswith(",command,gamma,n_steps")
    assert first.startswith("0,complete,2.0,500,1000,1.5,2026-01-01T00:00:00+0000,,1.0 3.0,")
    assert first.endswith(",0.9,")
    assert second.startswith("1,running,,0,0,")
    assert second.endswith(",,3")


def test_trials_that_were_trained_longest_come_first_and_failed_ones_never() -> None:
    rows = [
        a_row(0, -90.0),
        a_row(1, -80.0),
        a_row(2, -10.0, budget=100, status="pruned"),
        a_row(3, -5.0, budget=100, status="failed"),
        a_row(4),
        a_row(5, -80.0),
    ]
    assert [row.number for row in ranked(rows)] == [1, 5, 0, 2]


def test_the_cost_is_a_share_of_all_trials_with_all_seeds_at_the_full_budget() -> None:
    rows = [a_row(0, 1.0, 2.0), a_row(1, 1.0, 2.0, steps=200, status="pruned")]
    assert a_study().share(rows) == 1_200 / 10_000
