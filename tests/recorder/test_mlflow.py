"""Delivery of a run to a real MLflow store in SQLite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from border_cli.errors import ConfigError
from border_cli.recorder.deliver import Delivery
from border_cli.recorder.tracking import outbox_path, state_of

mlflow = pytest.importorskip("mlflow")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow's own warnings


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{store}")
    return store


@pytest.fixture
def here(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with an empty store at a unique URI: MLflow caches stores by URI."""
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/here/mlflow.db")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    (tmp_path / "here").mkdir()
    shutil.copy(empty_store, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "here"
    mlflow.set_tracking_uri(None)


def begin(attempt: int, **settings: Any) -> dict[str, Any]:
    return {
        "kind": "begin",
        "name": "runs/run",
        "project": None,
        "step": "opt_steps",
        "settings": {"seed": "0", **settings},
        "tags": {"attempt": attempt},
    }


def row(at_s: float, **metrics: float) -> dict[str, Any]:
    return {"kind": "row", "at": at_s, "metrics": {"opt_steps": 5, **metrics}}


def deliver(run: Path, *events: dict[str, Any]) -> None:
    """Appends events to the outbox of a run and delivers all of them."""
    outbox = outbox_path(run, "mlflow")
    outbox.parent.mkdir(parents=True, exist_ok=True)
    with outbox.open("a") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in events)
    delivery = Delivery(run, "mlflow")
    while delivery.step():
        pass


def runs_in(folder: Path) -> list[Any]:
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return [
        run
        for experiment in client.search_experiments()
        for run in client.search_runs(experiment.experiment_id)
    ]


def test_names_that_mlflow_refuses_are_delivered_as_other_names(here: Path) -> None:
    odd = [
        "k" * 300,
        "k" * 301,
        "a[0]",
        "a(0)",
        "a//b",
        "../a",
        "/a",
        ".",
        "a\n",
        "ä:b",
        "\ud800",
        "",
    ]
    deliver(
        here / "run",
        begin(1, **{name: str(number) for number, name in enumerate(odd)}),
        row(1.0, **{name: number for number, name in enumerate(odd)}),
    )
    [run] = runs_in(here)
    values = [str(number) for number in range(len(odd))]
    params = {value: name for name, value in run.data.params.items() if name != "seed"}
    assert sorted(params, key=int) == values
    metrics = {str(int(value)): name for name, value in run.data.metrics.items()}
    metrics["5"] = params["5"]  # opt_steps has the value 5 as well
    assert metrics == params
    assert params["2"].startswith("a_0_-")


def test_a_call_that_fails_leaves_no_second_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(mlflow.MlflowClient, "log_batch")
        for _ in range(2):
            with pytest.raises(AttributeError, match="log_batch"):
                deliver(here / "run", begin(1))
    deliver(here / "run", row(1.0, loss=0.5))
    [run] = runs_in(here)
    assert (run.data.params, run.data.metrics["loss"]) == ({"seed": "0"}, 0.5)


def test_the_settings_of_a_run_are_those_of_its_first_attempt(here: Path) -> None:
    deliver(here / "run", begin(1, lr="0.1"))
    deliver(here / "run", begin(2, lr="0.2"))
    [run] = runs_in(here)
    assert run.data.params["lr"] == "0.1"


def test_of_two_values_at_one_step_the_later_attempt_has_the_say(here: Path) -> None:
    deliver(here / "run", begin(1), row(1.0, loss=9.0, attempt=1))
    deliver(here / "run", begin(2), row(2.0, loss=0.5, attempt=2))
    [run] = runs_in(here)
    assert (run.data.metrics["loss"], run.data.metrics["attempt"]) == (0.5, 2)


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_that_is_resumed_elsewhere_is_told_where_its_records_are(
    here: Path,
    empty_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exists: bool,
    is_named: bool,
) -> None:
    deliver(here / "run", begin(1), row(1.0, loss=9.0))
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    if exists:
        shutil.copy(empty_store, elsewhere)
    monkeypatch.chdir(elsewhere)
    if is_named:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}/mlflow.db")
    else:
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="the records began in another store") as refusal:
        deliver(here / "run", begin(2), row(2.0, loss=0.5))
    assert f"with MLFLOW_TRACKING_URI=sqlite:///{here}/mlflow.db" in str(refusal.value)
    assert (elsewhere / "mlflow.db").exists() == exists
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/mlflow.db")  # as the error says
    deliver(here / "run")
    [run] = runs_in(here)
    assert run.data.metrics["loss"] == 0.5


def test_the_store_that_a_run_names_is_not_opened(here: Path, tmp_path: Path) -> None:
    deliver(here / "run", begin(1))
    file = outbox_path(here / "run", "mlflow").with_suffix(".json")
    strange = {
        **state_of(outbox_path(here / "run", "mlflow")),
        "store": f"sqlite:///{tmp_path}/x.db",
    }
    file.write_text(json.dumps(strange))
    deliver(here / "run", begin(2))
    assert not (tmp_path / "x.db").exists()


def test_a_job_of_a_sweep_that_began_elsewhere_opens_no_second_store(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "sweep").mkdir()
    (here / "sweep/sweep.json").write_text("{}")
    deliver(here / "sweep/0", begin(1))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="the records began in another store"):
        deliver(here / "sweep/1", begin(1))
    assert not (tmp_path / "elsewhere/mlflow.db").exists()
