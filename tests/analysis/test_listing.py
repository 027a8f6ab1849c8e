"""Lists of runs: the values of a row, `--where` conditions, and sorting."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from border_cli.analysis.listing import Row, filter_rows, row_of, sort_rows
from border_cli.analysis.load import SavedRun
from border_cli.errors import ConfigError
from tests.support.written_runs import without_end, write_run

NOW_S = datetime(2026, 1, 2, 10, tzinfo=UTC).timestamp()  # a day after the runs started


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """The rows of three runs; `c` failed before its first evaluation."""
    write_run(tmp_path / "a", {"seed": 0, "agent.gamma": 0.9}, best_score=100.0)
    write_run(tmp_path / "b", {"agent": "sac", "seed": 1, "agent.double": False}, duration_s=7200.0)
    lost = {"best_score": None, "final_score": None, "status": "failed"}
    lists = {"callback": ["mine"], "env.wrappers": [{"my:Scaled": {"factor": 2}}]}
    write_run(tmp_path / "c", {"agent": "td3", "seed": 2, "agent.hidden": [256], **lists}, **lost)
    return [row_of(SavedRun(tmp_path / name), NOW_S) for name in "abc"]


def names(rows: list[Row]) -> str:
    return "".join(row.folder.name for row in rows)


def test_a_row_has_the_figures_of_its_run(rows: list[Row]) -> None:
    values = rows[0].values
    figures = ("best", "last", "opt_steps", "env_steps", "duration", "age")
    assert [values[key] for key in figures] == [100.0, 150.0, 400, 800, 60.0, 86_400.0]
    assert [values[key] for key in ("status", "agent", "env", "host")] == [
        *("done", "dqn", "cartpole", "here")
    ]


def test_a_run_without_an_end_is_shown_as_of_its_newest_row(tmp_path: Path) -> None:
    metrics = [
        {"opt_steps": 10, "env_steps": 20, "time_s": 1.0, "eval/return": 33.0},
        {"opt_steps": 11, "env_steps": 22, "time_s": 1.5, "train/loss": 0.1},
    ]
    facts = without_end(opt_steps=5, env_steps=10, duration_s=None)
    folder = write_run(tmp_path / "a", metrics=metrics, **facts)
    (folder / "best").mkdir()
    (folder / "best" / "score.json").write_text('{"score": 44.0}', encoding="utf-8")
    row = row_of(SavedRun(folder), NOW_S)
    assert row.values["status"] == "killed"
    figures = ("opt_steps", "env_steps", "duration", "last", "best")
    assert [row.values[key] for key in figures] == [11, 22, 1.5, 33.0, 44.0]


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        ("", "abc"),
        ("agent=dqn", "a"),
        ("agent!=dqn", "bc"),
        ("agent=*d*", "ac"),
        ("best>100", "b"),
        ("best>=100", "ab"),
        ("best<=100", "a"),
        ("best=100.0", "a"),
        ("best=null", "c"),
        ("best!=null", "ab"),
        ("seed<2 agent!=sac", "a"),
        ("agent.double=true", "ac"),
        ("agent.double!=True", "b"),
        ("agent.gamma<0.95", "a"),
        ("agent.hidden=[256]", "c"),
        ("'agent.hidden=[64, 64]'", "ab"),
        ("trainer.max_time_s=null", "abc"),
        ("callback=[mine]", "c"),
        ('callback=["mine"]', "c"),  # as a shell would pass on 'callback=["mine"]'
        ("callback!=[mine]", "ab"),
        ("'env.wrappers=[{my:Scaled: {factor: 2}}]'", "c"),
        ("duration>1h", "b"),
        ("duration<=60", "ac"),
        ("age=1d", "abc"),
        ("age>1d", ""),
        ("started<2026-02", "abc"),
        ("status==failed", "c"),
    ],
)
def test_conditions_choose_runs(conditions: str, met: str, rows: list[Row]) -> None:
    assert names(filter_rows(rows, conditions)) == met


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("agnt=dqn", "unknown key 'agnt', did you mean agent"),
        ("agent.gama=1", "did you mean agent.gamma"),
        ("best", "'best' is not a condition"),
        ("best > 3", "is not a condition"),
        ("best>many", "best must be compared with a number, got 'many'"),
        ("age>2y", "or a time such as .*, got '2y'"),
        ("agent.hidden>3", "cannot be ordered"),
        ("'best", "No closing quotation"),
    ],
)
def test_what_is_no_condition_is_refused(conditions: str, message: str, rows: list[Row]) -> None:
    with pytest.raises(ConfigError, match=message):
        filter_rows(rows, conditions)


@pytest.mark.parametrize(
    ("key", "order"),
    [("best", "bac"), ("-best", "abc"), ("agent", "abc"), ("-agent", "cba"), ("seed", "cba")],
)
def test_the_best_comes_first_and_what_has_no_value_last(
    key: str, order: str, rows: list[Row]
) -> None:
    assert names(sort_rows(rows, key)) == order
