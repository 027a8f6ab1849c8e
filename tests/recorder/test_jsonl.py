"""metrics.jsonl: writing rows, reading them back, and rewinding on resume."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from border_cli.core.output import RecordStep, RunInfo
from border_cli.errors import CheckpointError
from border_cli.recorder.config import JsonlConfig
from border_cli.recorder.jsonl import JsonlRecorder
from border_cli.recorder.read import last_rows, read_metrics
from border_cli.registry import RECORDERS


def info(run_dir: Path) -> RunInfo:
    return RunInfo(
        name="test", run_dir=run_dir, max_opt_steps=100, max_env_steps=None, max_time_s=None
    )


def step(opt_steps: int) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=3 * opt_steps, time_s=opt_steps / 4)


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_each_row_is_one_line_of_strict_json_with_its_place_in_the_run(tmp_path: Path) -> None:
    recorder = RECORDERS.build(JsonlConfig(), info=info(tmp_path), console=None)
    recorder.write(step(2), {"train/loss": 0.25})
    recorder.write(step(4), {"eval/return": -1.5}, final=True)

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=refuse_constant) for line in lines] == [
        {"opt_steps": 2, "env_steps": 6, "time_s": 0.5, "train/loss": 0.25},
        {"opt_steps": 4, "env_steps": 12, "time_s": 1.0, "eval/return": -1.5, "final": True},
    ]
    recorder.close()


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    recorder = JsonlRecorder(JsonlConfig(), info=info(tmp_path))
    recorder.write(step(1), {"a/nan": math.nan, "a/inf": math.inf, "a/minus": -math.inf})
    recorder.close()

    line = (tmp_path / "metrics.jsonl").read_text()
    row = json.loads(line, parse_constant=refuse_constant)
    assert (row["a/nan"], row["a/inf"], row["a/minus"]) == (None, None, None)


def test_a_last_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"opt_steps": 1}\n{"opt_steps": 2, "train/l')
    assert read_metrics(path) == [{"opt_steps": 1}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a":\n{"a": 2}\n', "line 2: not JSON"),
        (b"[1]\n", "line 1: not a JSON object"),
        (b"[" * 100_000 + b"\n", "line 1: not JSON"),
    ],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_metrics(path)


def test_what_is_no_number_of_64_bits_is_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    odd = ['"x"', "[1]", "{}", "NaN", "Infinity", "1e999", "1" + "0" * 400, str(2**63)]
    path.write_text("".join(f'{{"a": {value}}}\n' for value in odd) + '{"a": 1.5, "b": -7}\n')
    assert read_metrics(path) == [*[{"a": None}] * len(odd), {"a": 1.5, "b": -7}]
    assert last_rows(path) == read_metrics(path)


def test_metrics_that_never_end_are_named_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl cannot be read: not a regular file"):
        read_metrics(tmp_path / "metrics.jsonl")
    assert last_rows(tmp_path / "metrics.jsonl") == []


def test_a_resumed_run_goes_on_where_its_checkpoint_was_without_gap_or_overlap(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    first = JsonlRecorder(JsonlConfig(), info=info(tmp_path))
    first.write(step(1), {"a/b": 1.0})
    saved = first.position()
    first.write(step(2), {"a/b": 1.0})
    first.close()
    with path.open("ab") as torn:  # as if killed in the middle of a row
        torn.write(b'{"opt_st')
    second = JsonlRecorder(JsonlConfig(), info=info(tmp_path))
    second.rewind(saved)
    second.write(step(2), {"a/b": 2.0})
    second.close()
    rows = read_metrics(path)
    assert [(row["opt_steps"], row["a/b"]) for row in rows] == [(1, 1.0), (2, 2.0)]


def test_no_other_file_than_its_own_is_cut_whatever_a_position_says(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"keep\n")
    recorder = JsonlRecorder(JsonlConfig(), info=info(tmp_path))
    recorder.rewind({"file": "mine", "size": 0})
    recorder.close()
    assert (tmp_path / "mine").read_bytes() == b"keep\n"
