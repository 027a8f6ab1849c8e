"""Training with the real trackers MLflow, W&B (offline) and trackio, including outages."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from border_cli.recorder.deliver import Delivery
from border_cli.recorder.tracking import outbox_path, state_of
from tests.support.case_sampling import weekly
from tests.support.commands import QUICK, SLOW, Command, facts_of, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow's own warnings

SMALL = ("agent=dqn", "env=cartpole", *QUICK, "trainer=sync", "trainer.record_interval=5")
LONG = (
    *(*SLOW, "trainer.record_interval=50"),
    *("trainer.max_opt_steps=100000000", "trainer.eval_interval=100000000"),
)
DEADLINE_S = 600.0


def training(folder: Path, tracker: str, *argv: str, **more: Any) -> Command:
    overrides = (f"recorder=[jsonl,{tracker}]", f"recorder.{tracker}.close_timeout_s=60")
    return Command(folder, *SMALL, *overrides, *argv, deadline_s=DEADLINE_S, **more)


def finished(folder: Path, tracker: str, *argv: str) -> str:
    with training(folder, tracker, *argv) as command:
        status, output = command.ended()
    assert status == 0, output
    assert "not all records are delivered" not in output, output
    return output


def mlflow_client(folder: Path) -> Any:
    mlflow = pytest.importorskip("mlflow")
    return mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def runs_of(client: Any) -> list[Any]:
    [experiment] = [item for item in client.search_experiments() if item.name == "border_cli"]
    return list(client.search_runs([experiment.experiment_id], max_results=50))


def history(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    metrics = client.get_metric_history(run.info.run_id, name)
    return sorted((metric.step, metric.value) for metric in metrics)


def test_a_run_in_sqlite_has_all_of_it_and_a_resumed_one_its_id(tmp_path: Path) -> None:
    client = mlflow_client(tmp_path)
    long = ("run_dir=run", "trainer.save_interval=10", "trainer.max_opt_steps=32")
    finished(tmp_path, "mlflow", *long)
    [first] = runs_of(client)
    assert first.info.status == "FINISHED"
    assert first.data.params["agent.batch_size"] == "4"
    rows = rows_of(tmp_path / "run")
    assert history(client, first, "loss") == sorted(
        (row["opt_steps"], row["loss"]) for row in rows if "loss" in row
    )
    assert [step for step, _ in history(client, first, "env_steps")] == [
        row["opt_steps"] for row in rows
    ]
    tags = first.data.tags
    assert (tags["status"], tags["exit_reason"]) == ("done", "max_opt_steps reached")
    assert tags["command"].endswith("trainer.max_opt_steps=32")
    files = {artifact.path for artifact in client.list_artifacts(first.info.run_id)}
    assert files == {"settings", "best", "trackers"}
    finished(tmp_path, "mlflow", "resume=run", "trainer.max_opt_steps=60")
    [second] = runs_of(client)
    assert (second.info.run_id, second.info.status) == (first.info.run_id, "FINISHED")
    assert {value for _, value in history(client, second, "attempt")} == {1, 2}
    assert second.data.tags["attempt"] == "2"
    assert len(facts_of(tmp_path / "run")["attempts"]) == 2


def test_the_runs_of_a_sweep_have_one_parent(tmp_path: Path) -> None:
    client = mlflow_client(tmp_path)
    finished(tmp_path, "mlflow", "-m", "seed=0,1,2", "run_dir=three")
    parent = (tmp_path / "three/mlflow.parent").read_text()
    runs = {run.info.run_id: run for run in runs_of(client)}
    assert runs.pop(parent).info.status == "FINISHED"
    assert len(runs) == 3
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent}
    assert {run.data.params["seed"] for run in runs.values()} == set("012")


def test_a_killed_command_is_recorded_and_its_delivery_process_exits(tmp_path: Path) -> None:
    client = mlflow_client(tmp_path)
    outbox = outbox_path(tmp_path / "run", "mlflow")
    with training(tmp_path, "mlflow", "run_dir=run", *LONG) as command:
        command.until(lambda: state_of(outbox)["delivered"] > 0)
        command.send(signal.SIGKILL)
        command.ended()
    with outbox.open("rb") as file:
        wait_for_lock(file.fileno())
    [run] = runs_of(client)
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "killed")


def wait_for_lock(descriptor: int) -> None:
    """Returns once the delivery process has exited."""
    import fcntl

    signal.alarm(60)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    signal.alarm(0)


def test_a_run_without_a_server_says_so_once_and_is_delivered_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_client(tmp_path)
    secret = "SECRET0123"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:{secret}@127.0.0.1:{free_port()}")
    overrides = ("run_dir=run", *LONG, "recorder.mlflow.close_timeout_s=3")
    with training(tmp_path, "mlflow", *overrides) as command:
        command.until(lambda: "not delivered for now" in command.said_so_far())
        rows = len(rows_of(tmp_path / "run"))
        command.until(lambda: len(rows_of(tmp_path / "run")) > rows + 5)
        command.send(signal.SIGINT)
        _, output = command.ended()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert output.count("not delivered for now") == 1, output
    assert secret not in output
    assert "//***@127.0.0.1" in (tmp_path / "run/trackers/mlflow.log").read_text()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert "not all records are delivered" in output
    again = [sys.executable, "-P", "-m", "border_cli.recorder.deliver", "run", "mlflow"]
    subprocess.run(again, cwd=tmp_path, check=True, timeout=300, stdin=subprocess.DEVNULL)
    [run] = runs_of(client)
    assert run.info.status == "KILLED"
    assert len(history(client, run, "opt_steps")) == len(rows_of(tmp_path / "run"))


def test_the_death_of_the_delivering_process_ends_no_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with training(tmp_path, "mlflow", "run_dir=run", *LONG) as command:
        command.until(lambda: bool(delivering(tmp_path / "run")))
        [pid] = delivering(tmp_path / "run")
        os.kill(pid, signal.SIGKILL)
        rows = len(rows_of(tmp_path / "run"))
        command.until(lambda: len(rows_of(tmp_path / "run")) > rows + 2)
        command.send(signal.SIGINT)
        status, output = command.ended()
    assert status == 130
    assert "not all records are delivered" in output
    assert "Traceback" not in output


def delivering(run_dir: Path) -> list[int]:
    """Returns the process IDs of the delivery processes of a run."""
    pids = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = cmdline.read_bytes().split(b"\0")
            if b"border_cli.recorder.deliver" in words and str(run_dir).encode() in words:
                pids.append(int(cmdline.parent.name))
    return pids


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def running_server(folder: Path, port: int) -> Iterator[None]:
    """Runs an MLflow server on this port and kills it at the end."""
    store = f"sqlite:///{folder / 'server.db'}"
    options = ["--backend-store-uri", store, "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *options],
        cwd=folder,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end_s = monotonic() + 60
        while monotonic() < end_s:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
            assert server.poll() is None
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@weekly
def test_a_server_that_is_killed_and_started_again_has_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flask", reason="mlflow server needs the full package mlflow")
    mlflow = pytest.importorskip("mlflow")
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    outbox = outbox_path(tmp_path / "run", "mlflow")
    with training(tmp_path, "mlflow", "run_dir=run", *LONG) as command:
        with running_server(tmp_path, port):
            command.until(lambda: state_of(outbox)["delivered"] > 4_000)
        command.until(lambda: "not delivered for now" in command.said_so_far())
        with running_server(tmp_path, port):
            before = state_of(outbox)["delivered"]
            command.until(lambda: state_of(outbox)["delivered"] > before)
            command.send(signal.SIGINT)
            status, output = command.ended()
            assert status == 130, output
            client = mlflow.MlflowClient(uri)
            [run] = runs_of(client)
            assert run.info.status == "KILLED"
            steps = [step for step, _ in history(client, run, "time_s")]
            assert steps == [row["opt_steps"] for row in rows_of(tmp_path / "run")]


def wandb_records(folder: Path) -> Iterator[Any]:
    """Yields the records in the files of W&B's offline runs, parsed with W&B's own schema."""
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, offset, payload = file.read_bytes(), 7, b""
        while offset + 7 <= len(data):
            if 2**15 - offset % 2**15 < 7:  # padding at the end of a block
                offset += 2**15 - offset % 2**15
                continue
            _, length, kind = struct.unpack_from("<IHB", data, offset)
            payload += data[offset + 7 : offset + 7 + length]
            offset += 7 + length
            if kind in (1, 4):  # a complete record, or the last part of one
                record, payload = Record.FromString(payload), b""
                yield record


def wandb_rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            item.key or item.nested_key[0]: json.loads(item.value_json)
            for item in record.history.item
        }
        for record in wandb_records(folder)
        if record.HasField("history")
    ]


def test_wandb_offline_has_every_row_and_a_resumed_run_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path))  # without a W&B login
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    finished(tmp_path, "wandb", "run_dir=run", "trainer.max_opt_steps=20")
    saved = [(row["opt_steps"], row["loss"]) for row in rows_of(tmp_path / "run") if "loss" in row]
    logged = [(row["opt_steps"], row["loss"]) for row in wandb_rows(tmp_path) if "loss" in row]
    assert logged == saved
    finished(tmp_path, "wandb", "resume=run", "trainer.max_opt_steps=40")
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1
    assert [row["attempt"] for row in wandb_rows(tmp_path) if row["opt_steps"] == 40][-1] == 2


def from_trackio(script: str) -> Any:
    """Runs a script that reads from `Store`, trackio's store; returns its variable `found`."""
    code = (
        f"import json; from trackio.sqlite_storage import SQLiteStorage as Store; {script}; "
        "print(json.dumps(found))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(process.stdout.splitlines()[-1])


def test_trackio_has_every_row_and_a_resumed_run_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    finished(tmp_path, "trackio", "run_dir=run", "trainer.max_opt_steps=20")
    finished(tmp_path, "trackio", "resume=run", "trainer.max_opt_steps=40")
    rows = from_trackio(
        "[run] = Store.get_runs('border_cli'); found = Store.get_logs('border_cli', run)"
    )
    # If both attempts logged a step, the later one counts.
    newest = {row["opt_steps"]: row["attempt"] for row in rows}
    assert set(newest) == {row["opt_steps"] for row in rows_of(tmp_path / "run")}
    assert set(newest.values()) == {1, 2}


@weekly
def test_a_sweep_is_a_group_of_wandb_and_of_trackio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("trackio")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    both = ("recorder=[jsonl,wandb,trackio]", "recorder.wandb.close_timeout_s=60")
    finished(tmp_path, "trackio", "-m", "seed=0,1", "run_dir=two", *both)
    runs = [record.run for record in wandb_records(tmp_path) if record.HasField("run")]
    names = {"two/seed-0", "two/seed-1"}
    assert {run.display_name for run in runs} == names
    assert {run.run_group for run in runs} == {"two"}
    script = (
        "runs = Store.get_runs('border_cli'); "
        "found = {run: Store.get_run_config('border_cli', run)['_Group'] for run in runs}"
    )
    assert from_trackio(script) == dict.fromkeys(names, "two")


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    outbox = outbox_path(tmp_path, "mlflow")
    outbox.parent.mkdir()
    outbox.write_bytes(b'{"kind": "row"')
    assert not Delivery(tmp_path, "mlflow").step()
