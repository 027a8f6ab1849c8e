"""The job list of a sweep, the statuses of its jobs, `sweep.csv` and the stop file."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from border_cli.errors import ConfigError
from border_cli.run.lock import RunLock
from border_cli.run.sweep_folder import (
    SweepJob,
    SweepPlan,
    add_job,
    clear_stop,
    csv_text,
    job_rows,
    read_stop,
    read_sweep,
    write_stop,
    write_sweep,
)
from tests.support.written_runs import without_end, write_run


def job(number: int, **values: str) -> SweepJob:
    overrides = tuple(f"{key}={value}" for key, value in values.items())
    return SweepJob(number=number, overrides=overrides, folder=str(number), values=values)


def plan(*jobs: SweepJob, swept: str = "seed") -> SweepPlan:
    command = ["border-train", "-m"]
    return SweepPlan(command=command, launcher="basic", swept=[swept], jobs=list(jobs))


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    written = plan(job(0, seed="1"), job(1, seed="2"))
    write_sweep(tmp_path, written)
    assert read_sweep(tmp_path) == written


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": [{"number": 0}]}', '{"jobs": []}'])
def test_a_list_of_another_program_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text, encoding="utf-8")
    assert read_sweep(tmp_path) is None


@pytest.mark.parametrize("folder", ["../victim/run1", "/home/me/run", "..", "", "a/b", "."])
def test_a_job_that_lies_elsewhere_is_refused(tmp_path: Path, folder: str) -> None:
    text = json.dumps(
        {
            "command": ["border-train", "-m"],
            "launcher": "basic",
            "swept": [],
            "jobs": [{"number": 0, "overrides": [], "folder": folder}],
        }
    )
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ConfigError, match="folder of a job must be a name in the directory of"):
        read_sweep(tmp_path)


def test_every_job_has_a_row_whatever_became_of_it(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", status="failed")
    write_run(tmp_path / "2", **without_end())  # its process has died
    write_run(tmp_path / "3", **without_end())
    (tmp_path / "4").mkdir()
    (tmp_path / "4/run.lock").touch()
    jobs = plan(*(job(number, seed=str(number)) for number in range(6)))
    with RunLock(tmp_path / "3"):
        rows = job_rows(tmp_path, jobs)
    statuses = ["done", "failed", "killed", "running", "lost", "not started"]
    assert [row.status for row in rows] == statuses
    assert [row.score for row in rows] == [200.0, *[None] * 5]
    assert rows[4].reason == "it has begun, but run.json is missing or damaged"


def test_the_score_of_a_job_is_its_objective(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    last = replace(job(0, seed="1"), objective="last")
    assert [row.score for row in job_rows(tmp_path, plan(last))] == [150.0]


def test_the_csv_has_a_column_for_each_swept_key_with_its_value_unescaped(tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", status="failed", exit_reason='Boom: "a, b"')
    jobs = plan(job(0, name="a, b", seed="1"), job(1, name='"c"', seed="1"), swept="name")
    rows = list(csv.DictReader(csv_text(jobs, job_rows(tmp_path, jobs)).splitlines()))
    assert [row["name"] for row in rows] == ["a, b", '"c"']
    assert [row["reason"] for row in rows] == ["max_opt_steps reached", 'Boom: "a, b"']
    columns = "job,name,status,score,best_score,final_score,opt_steps,env_steps,seconds,reason"
    assert [rows[0][column] for column in columns.split(",")] == [
        *("0", "a, b", "done", "200.0", "200.0", "150.0", "400", "800", "60.0"),
        "max_opt_steps reached",
    ]


def test_a_job_that_a_sweeper_invents_is_added_once(tmp_path: Path) -> None:
    write_sweep(tmp_path, plan(job(0, seed="1"), swept=""))
    add_job(tmp_path, job(1, seed="2"))
    add_job(tmp_path, job(1, seed="2"))
    sweep = read_sweep(tmp_path)
    assert sweep is not None
    assert [entry.number for entry in sweep.jobs] == [0, 1]
    assert sweep.swept == ["seed"]


def test_the_first_reason_to_stop_stays_until_the_sweep_begins_again(tmp_path: Path) -> None:
    assert read_stop(tmp_path) is None
    write_stop(tmp_path, "job 3 failed")
    write_stop(tmp_path, "job 4 failed")
    assert read_stop(tmp_path) == "job 3 failed"
    clear_stop(tmp_path)
    assert read_stop(tmp_path) is None
