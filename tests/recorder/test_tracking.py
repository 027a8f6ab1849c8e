"""Positions of two trackers, and the end of a delivery process whose store is slow to create."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.recorder.config import MlflowConfig, WandbConfig
from border_cli.recorder.tracking import TrackerRecorder, outbox_path, state_of
from border_cli.system.files import AppendFile
from border_cli.trainer.recorder_set import RecorderSet

# If the lock that keeps other processes from creating tables is held, the constructor of the client
# waits until the test writes to the pipe `word`.
PACKAGE = """
import fcntl, os
from pathlib import Path
from unittest.mock import Mock

MlflowException, set_tracking_uri = Exception, Mock()

def set_experiment(name):
    raise OSError("no server answers")

class MlflowClient:
    def __init__(self):
        from border_cli.recorder import mlflow

        try:
            fcntl.flock(os.open(mlflow.__file__, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Path("created").write_text(Path("word").read_text())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the fake package and the pipe that it reads from."""
    (tmp_path / "packages/mlflow").mkdir(parents=True)
    (tmp_path / "packages/mlflow/__init__.py").write_text(PACKAGE)
    (tmp_path / "packages/mlflow/entities.py").write_text("Metric = Param = RunTag = None")
    os.mkfifo(tmp_path / "word")
    paths = [str(tmp_path / "packages"), *filter(os.path.isabs, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def info_of(run_dir: Path) -> RunInfo:
    (run_dir / "trackers").mkdir(parents=True, exist_ok=True)
    return RunInfo(
        name="run", run_dir=run_dir, max_opt_steps=1, max_env_steps=None, max_time_s=None
    )


def recorder_in(run_dir: Path) -> TrackerRecorder:
    return TrackerRecorder(MlflowConfig(close_timeout_s=0.1), info=info_of(run_dir))


def test_each_of_two_trackers_has_its_own_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrackerRecorder, "_start_process", Mock())
    monkeypatch.setattr(TrackerRecorder, "_log_output", Mock())
    info = info_of(tmp_path)

    def opened() -> RecorderSet:
        configs = MlflowConfig(project="a project with a longer name"), WandbConfig()
        return RecorderSet([TrackerRecorder(config, info=info) for config in configs])

    with closing(opened()) as first:
        for opt_steps in range(3):
            first.write(RecordStep(opt_steps=opt_steps, env_steps=1, time_s=0.0), {"loss": 1.0})
        positions = first.positions()
        first.write(RecordStep(opt_steps=3, env_steps=1, time_s=0.0), {"loss": 1.0})
    with closing(opened()) as resumed:
        resumed.rewind(positions)
        resumed.write(RecordStep(opt_steps=4, env_steps=1, time_s=0.0), {"loss": 1.0})
    for tracker in ("mlflow", "wandb"):
        lines = outbox_path(tmp_path, tracker).read_bytes().splitlines()
        kinds = [json.loads(line)["kind"] for line in lines]
        assert kinds == ["begin", "row", "row", "row", "begin", "row"]


@pytest.mark.slow  # waits five seconds for the event that is being delivered
def test_a_process_that_creates_a_store_is_not_killed_and_exits_afterwards(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_in(folder / "run")
    recorder.write(RecordStep(opt_steps=1, env_steps=1, time_s=0.0), {"loss": 1.0})
    with (folder / "word").open("w") as word:  # blocks until the process creates the store
        recorder.end(RunEnd(status="done"))
        recorder.close()
        with caplog.at_level(logging.WARNING):
            recorder.wait()
        word.write("whole")
    assert "still creates or migrates a database" in caplog.text
    assert "not all records are delivered" in caplog.text
    outbox = outbox_path(folder / "run", "mlflow")
    with outbox.open("rb") as file:
        signal.alarm(60)
        fcntl.flock(file, fcntl.LOCK_EX)  # the delivery process holds it until it exits
        signal.alarm(0)
    recorder.wait()  # reaps the process
    assert (folder / "created").read_text() == "whole"
    assert "no server answers" not in outbox.with_suffix(".log").read_text()  # not reached
    assert state_of(outbox)["opening"] is False


def test_the_exit_status_shows_whether_everything_was_delivered(folder: Path) -> None:
    (folder / "word").unlink()
    (folder / "word").write_text("whole")
    outbox = outbox_path(folder / "run", "mlflow")
    command = [sys.executable, "-P", "-m", "border_cli.recorder.deliver", "run", "mlflow", "0.1"]

    def deliver() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    outbox.parent.mkdir(parents=True)
    begin = '{"kind": "begin", "name": "run", "settings": {}, "tags": {}, "project": null, '
    outbox.write_text(f'{begin}"step": "opt_steps"}}\n{{"kind": "end", "summary": {{}}}}\n')
    refused = deliver()
    assert refused.returncode == 1, refused.stderr
    assert "not delivered for now: OSError('no server answers')" in refused.stdout
    outbox.with_suffix(".json").write_text('{"run": "id", "store": "sqlite:////x/mlflow.db"}')
    elsewhere = deliver()
    assert elsewhere.returncode == 2
    assert "deliver with MLFLOW_TRACKING_URI=sqlite:////x/mlflow.db" in elsewhere.stdout
    outbox.with_suffix(".json").write_text(f'{{"delivered": {outbox.stat().st_size}}}')
    assert deliver().returncode == 0


def test_an_attempt_that_begins_on_a_full_disk_is_described_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrackerRecorder, "_start_process", Mock())
    monkeypatch.setattr(TrackerRecorder, "_log_output", Mock())
    recorder = RecorderSet([recorder_in(tmp_path)])
    step = RecordStep(opt_steps=1, env_steps=1, time_s=0.0)
    with monkeypatch.context() as patch:
        full = Mock(side_effect=OSError(errno.ENOSPC, "full"))
        patch.setattr(AppendFile, "append", full)
        recorder.write(step, {"loss": 1.0})
    recorder.write(step, {"loss": 2.0})
    recorder.close()
    lines = outbox_path(tmp_path, "mlflow").read_bytes().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["begin", "row"]


def test_a_resume_does_not_cut_the_outbox_while_an_earlier_process_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrackerRecorder, "_start_process", Mock())
    monkeypatch.setattr(TrackerRecorder, "_log_output", Mock())
    with closing(recorder_in(tmp_path)) as first:
        position = first.position()
        first.write(RecordStep(opt_steps=1, env_steps=1, time_s=0.0), {"loss": 1.0})
    outbox = outbox_path(tmp_path, "mlflow")
    before = outbox.read_bytes()
    with outbox.open("rb") as file, closing(recorder_in(tmp_path)) as resumed:
        fcntl.flock(file, fcntl.LOCK_EX)  # held by the process of the first attempt
        resumed.rewind(position)
        assert outbox.read_bytes() == before


def test_on_a_file_system_without_locks_records_are_delivered_and_rewound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import errno, fcntl, runpy, sys; from unittest.mock import Mock; "
    code += "fcntl.flock = Mock(side_effect=OSError(errno.ENOSYS, 'no locks')); "
    code += "sys.argv = ['deliver', 'run', 'mlflow', '0.1']; "
    code += "runpy.run_module('border_cli.recorder.deliver', run_name='__main__')"
    monkeypatch.chdir(tmp_path)
    outbox = outbox_path(tmp_path / "run", "mlflow")
    outbox.parent.mkdir(parents=True)
    outbox.write_text('{"kind": "end", "summary": {}}\n')
    outbox.with_suffix(".json").write_text(f'{{"delivered": {outbox.stat().st_size}}}')
    command = [sys.executable, "-c", code]
    delivered = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert delivered.returncode == 0, delivered.stderr
