"""Delivery of a run directory prepared by an attacker: only files of the run are sent, and only to
the account of the user. Uses fakes of the packages trackio and wandb."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from border_cli.errors import ConfigError
from border_cli.recorder.config import MlflowConfig, TrackioConfig, WandbConfig, refuse_store_here
from border_cli.recorder.deliver import Delivery, main
from border_cli.recorder.tracking import outbox_path
from border_cli.system.files import SETTINGS


class Package(ModuleType):
    """A fake trackio that records the arguments of `init` and the files that are logged."""

    def __init__(self) -> None:
        super().__init__("trackio")
        self.begun: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.config: dict[str, Any] = {}

    def init(self, project: str, **arguments: Any) -> Package:
        self.begun.append({"project": project, **arguments})
        return self

    def log(self, metrics: dict[str, Any], step: int) -> None:
        del metrics, step

    def log_artifact(self, path: str, *, name: str, type: str) -> None:
        del name, type
        self.files.append(path)

    def finish(self) -> None:
        """Does nothing."""


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Package:
    package = Package()
    monkeypatch.setitem(sys.modules, "trackio", package)
    monkeypatch.delitem(sys.modules, "border_cli.recorder.trackio", raising=False)
    return package


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with a video and a best model, next to a folder of secrets."""
    run = tmp_path / "sweep" / "run"
    best = "checkpoints/best-0000000010"
    for name in (str(SETTINGS), "videos/0000000010.gif", f"{best}/agent.npz", f"{best}/notes.txt"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    (run / "best").symlink_to(best)
    (tmp_path / "secrets").mkdir()
    for name in ("id_rsa", "agent.npz"):
        (tmp_path / "secrets" / name).touch()
    return run


BEGIN = {
    "kind": "begin",
    "name": "sweep/run",
    "project": None,
    "step": "opt_steps",
    "settings": {"seed": 0},
    "tags": {"attempt": 1},
}
END = {"kind": "end", "summary": {"status": "done"}}


def deliver(run: Path, *events: dict[str, Any], **state: Any) -> None:
    """Writes these events to the outbox and delivers all of them."""
    outbox = outbox_path(run, "trackio")
    outbox.parent.mkdir(exist_ok=True)
    outbox.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    if state:
        outbox.with_suffix(".json").write_text(json.dumps(state))
    delivery = Delivery(run, "trackio")
    while delivery.step():
        pass


def test_files_of_the_run_are_sent_and_no_others(run: Path, package: Package) -> None:
    names = (
        *("videos/0000000010.gif", str(run.parents[1] / "secrets/id_rsa"), "../../secrets/id_rsa"),
        *("best/agent.npz", "run.lock", "checkpoints", str(run / "videos/0000000010.gif")),
    )
    deliver(run, BEGIN, *({"kind": "film", "path": name} for name in names), END)
    best = "checkpoints/best-0000000010/agent.npz"
    expected = [str(SETTINGS), "videos/0000000010.gif", "trackers/summary.json", best]
    assert package.files == [str(run / name) for name in expected]


@pytest.mark.parametrize(
    "target", ["{secrets}", "../../secrets", "checkpoints", "checkpoints/../.."]
)
def test_best_leads_to_a_best_model_of_the_same_run_or_nowhere(
    run: Path, package: Package, target: str
) -> None:
    (run / "best").unlink()
    (run / "best").symlink_to(target.format(secrets=run.parents[1] / "secrets"))
    deliver(run, BEGIN, END)
    assert package.files == [str(run / name) for name in (str(SETTINGS), "trackers/summary.json")]


@pytest.mark.parametrize("name", [str(SETTINGS), "checkpoints/best-0000000010/agent.npz"])
def test_no_link_in_the_place_of_a_file_is_followed(run: Path, package: Package, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to(run.parents[1] / "secrets/id_rsa")
    deliver(run, BEGIN, END)
    assert str(run / name) not in package.files


def test_accounts_and_groups_are_not_taken_from_the_run(run: Path, package: Package) -> None:
    strange = {"entity": "ATTACKER", "space_id": "attacker/space", "name": "x", "config": {}}
    begin = {**BEGIN, "init": strange, "group": "/home/me", "project": "attacker/open"}
    deliver(run, begin, END)
    row = {"kind": "row", "metrics": {"opt_steps": 1}, "at": 0}
    deliver(run, row, END, begun=begin, delivered=0)  # continues what an earlier attempt started
    expected = {
        "project": "border_cli",
        "name": "sweep/run",
        "group": None,
        "config": {"seed": 0, "attempt": 1},
        "resume": "allow",
        "auto_log_gpu": False,
        "auto_log_cpu": False,
    }
    started = [{**begun, "config": {"seed": 0, "attempt": 1}} for begun in package.begun]
    assert started == [expected, expected]


@pytest.mark.parametrize("mark", ["sweep.json", None])
def test_the_group_is_the_sweep_that_the_run_lies_in(
    run: Path, package: Package, mark: str | None
) -> None:
    if mark:
        (run.parent / mark).write_text("{}")
    deliver(run, {**BEGIN, "project": "mine"}, END)
    assert [(begun["project"], begun["group"]) for begun in package.begun] == [
        ("mine", "sweep" if mark else None)
    ]


@pytest.mark.parametrize("project", ["attacker/open", "https://x.example", "a\\b", ""])
def test_a_project_is_a_plain_name(project: str) -> None:
    with pytest.raises(ConfigError, match=r"recorder\.wandb\.project must be a plain name"):
        WandbConfig(project=project)


def test_a_link_in_the_place_of_what_is_delivered_is_refused(run: Path) -> None:
    (run / "trackers").symlink_to(run.parents[1] / "secrets")
    with pytest.raises(ConfigError, match="trackers is a link to"):
        main(run, "trackio")
    (run / "trackers").unlink()
    (run / "trackers").mkdir()
    (run.parent / "sweep.json").write_text("{}")
    os.mkfifo(run.parent / "mlflow.parent")
    with pytest.raises(ConfigError, match=r"mlflow\.parent is not a regular file"):
        main(run, "trackio")


def test_no_store_or_settings_of_a_folder_that_we_wrote_are_used(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(run / "videos")
    for config in (MlflowConfig(), WandbConfig()):
        with pytest.raises(ConfigError, match="would use files of the current directory"):
            config.refuse_missing()
    with pytest.raises(ConfigError, match=r"it is enough to set \$MLFLOW_TRACKING_URI"):
        main(run, "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    refuse_store_here("mlflow")
    monkeypatch.setenv("WANDB_DIR", str(run.parents[1]))  # W&B does not look for settings there
    with pytest.raises(ConfigError, match="recorder=wandb would use files"):
        refuse_store_here("wandb")
    refuse_store_here(TrackioConfig.tracker)
    monkeypatch.chdir(run.parents[1])
    refuse_store_here("wandb")


class Wandb(ModuleType):
    """A fake wandb whose settings contain this server; records the arguments of `init`."""

    Settings = dict

    def __init__(self, server: str, api_key: str | None = None) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self._settings = SimpleNamespace(base_url=server, api_key=api_key)

    def setup(self) -> Any:
        return SimpleNamespace(settings=self._settings)

    def init(self, **arguments: Any) -> Any:
        self.begun.append(arguments)
        return self

    def define_metric(self, *names: str, **more: str) -> None:
        """Does nothing."""


def begun_by_wandb(package: Wandb, monkeypatch: pytest.MonkeyPatch, **config: Any) -> Any:
    """Returns the arguments that `WandbRun` passes to `wandb.init`."""
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.delitem(sys.modules, "border_cli.recorder.wandb", raising=False)
    from border_cli.recorder.wandb import WandbRun

    state: dict[str, Any] = {}
    saved_states: list[dict[str, Any]] = []
    facts = {"project": None, "step": "opt_steps", "init": {"config": config}}
    WandbRun(state, facts, lambda: saved_states.append({**state, "begun": len(package.begun)}))
    # The ID is saved before `init`: otherwise a retry would create a second run.
    assert saved_states[0] == {"run": state["run"], "begun": 0}
    monkeypatch.delitem(sys.modules, "border_cli.recorder.wandb")
    return package.begun[0]


def test_settings_lead_wandb_to_no_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """W&B would log in at the host named in an artifact reference."""
    monkeypatch.setenv("HOME", str(tmp_path))
    strange = {"x": "wandb-artifact://http://HOST/a/b:v0", "y": [{"z": "wandb-artifact://HOST"}]}
    begun = begun_by_wandb(Wandb("https://api.wandb.ai"), monkeypatch, seed=0, **strange)
    assert begun["config"]["seed"] == 0
    assert "artifact://" not in json.dumps(begun)


@pytest.mark.parametrize(
    ("server", "more", "mode"),
    [
        ("https://wandb.lab.example:8080", {}, None),  # .netrc has a login for this server
        ("https://api.wandb.ai", {}, "offline"),
        ("https://api.wandb.ai", {"NETRC": "other"}, None),
        ("https://api.wandb.ai", {"WANDB_MODE": "online"}, None),
        ("https://api.wandb.ai", {"WANDB_IDENTITY_TOKEN_FILE": "token"}, None),
    ],
)
def test_a_login_at_the_server_of_the_user_is_a_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str, more: dict[str, str], mode: Any
) -> None:
    for name in ("NETRC", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for file, host in ((".netrc", "wandb.lab.example:8080"), ("other", "api.wandb.ai")):
        (tmp_path / file).write_text(f"machine {host} login user password {'0' * 40}")
        (tmp_path / file).chmod(0o600)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    assert begun_by_wandb(Wandb(server), monkeypatch)["mode"] == mode
    assert begun_by_wandb(Wandb(server, api_key="0" * 40), monkeypatch)["mode"] is None
