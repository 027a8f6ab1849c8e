"""The command `border-export`, the readers of exported folders, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

from border_cli import load_policy
from border_cli.cli import export as export_command
from border_cli.errors import CheckpointError
from tests.support.commands import QUICK, eval_status, facts_of, isolated, train_status

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
FILES = {
    *("README.md", "model.safetensors", "policy.json", "policy.npz", "policy.onnx"),
    *("resolved.yaml", "verification.npz"),
}


def export_status(*argv: str) -> int:
    try:
        export_command.main(argv)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run (`run`) and its exported policy (`to`)."""
    folder = tmp_path_factory.mktemp("exported")
    with isolated(folder):
        more = ("agent=dqn", "env=cartpole", "trainer=sync", "agent.normalize_obs=true")
        assert train_status(*more, *QUICK, "trainer.max_opt_steps=20", "run_dir=run") == 0
        assert export_status("run", "to", "episodes=3", "--json") == 0
    return folder


@pytest.fixture(autouse=True)
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_the_folder_acts_as_the_run_does_wherever_it_is(home: Path) -> None:
    assert {path.name for path in (home / "to").iterdir()} == FILES
    obs = np.random.default_rng(0).normal(size=(500, 4))
    expected = load_policy("run").act(obs)
    np.testing.assert_array_equal(load_policy("to").act(obs), expected)
    Path("npz_less").mkdir()
    for name in ("model.safetensors", "resolved.yaml"):
        Path("npz_less", name).write_bytes(Path("to", name).read_bytes())
    content = json.loads(Path("to/policy.json").read_text())
    del content["files"]["policy.npz"]
    Path("npz_less/policy.json").write_text(json.dumps(content))
    np.testing.assert_array_equal(load_policy("npz_less").act(obs), expected)


def test_a_run_that_insists_on_numpy_is_exported_as_well() -> None:
    settings = ("agent=dqn", "env=cartpole", "trainer=sync", *QUICK, "agent.backend=numpy")
    assert train_status(*settings, "device=cpu", "run_dir=in_numpy") == 0
    assert export_status("in_numpy", "from_numpy", "episodes=1") == 0
    obs = np.random.default_rng(0).normal(size=(500, 4))
    np.testing.assert_array_equal(
        load_policy("from_numpy").act(obs), load_policy("in_numpy").act(obs)
    )


def test_numpy_alone_acts_with_it(home: Path) -> None:
    script = (
        "import sys, border_cli, numpy as np; policy = border_cli.load_policy('to'); "
        "print(int(policy.act(np.zeros(4))), [name for name in "
        "('torch', 'gymnasium', 'hydra', 'omegaconf', 'yaml', 'rich') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=home, capture_output=True, text=True, check=True
    )
    assert process.stdout.split(" ", 1)[1] == "[]\n"


def test_an_evaluation_of_it_is_that_of_the_run(capsys: Capture) -> None:
    scores = []
    for folder in ("run", "to"):
        assert eval_status(folder, "seed=5", "episodes=3", "--json") == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0]["returns"] == scores[1]["returns"]
    assert (scores[1]["checkpoint"], scores[1]["opt_steps"]) == ("exported", scores[0]["opt_steps"])
    assert eval_status("to", "env.id=CartPole-v0", "episodes=1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["env"] == "CartPole-v0"
    assert eval_status("to", "env=acrobot", "episodes=1") == 2
    message = "the policy of env.id=CartPole-v1 has observations float32 [4], but env.id=Acrobot-v1"
    assert message in capsys.readouterr().err


def test_a_new_run_begins_with_its_weights_and_settings() -> None:
    assert train_status("--from", "to", "init_from=to", "run_dir=more", "seed=3") == 0
    saved = load_policy("more", "latest")
    assert saved.act(np.zeros(4)) in (0, 1)
    settings = facts_of(Path("more"))["settings"]
    assert (settings["agent.hidden"], settings["agent.normalize_obs"]) == ([4], True)


def test_the_card_is_read_by_the_hubs_own_parser() -> None:
    card = ModelCard.load("to/README.md")
    assert 'load_policy("to")' in card.text
    assert "border-eval to episodes=100" in card.text
    assert "DIR" not in card.text
    assert card.data.library_name == "border_cli"
    assert card.data.tags[-3:] == ["CartPole-v1", "dqn", "border_cli"]
    [result] = card.data.eval_results
    assert (result.task_type, result.dataset_type) == ("reinforcement-learning", "CartPole-v1")
    assert result.metric_type == "mean_reward"
    mean, deviation = map(float, str(result.metric_value).split(" +/- "))
    assert mean > 0
    assert deviation >= 0


def copy_export(home: Path, folder: Path) -> Path:
    for path in (home / "to").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def truncate(folder: Path) -> None:
    os.truncate(folder / "policy.npz", 100)


def link(folder: Path) -> None:
    (folder / "policy.npz").rename(folder / "else")
    (folder / "policy.npz").symlink_to("else")


def add_pickle(folder: Path) -> None:
    (folder / "agent.pt").write_bytes(b"")


def set_version(folder: Path) -> None:
    content = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**content, "version": 7}))


def break_json(folder: Path) -> None:
    os.truncate(folder / "policy.json", 100)


def forge(folder: Path) -> None:
    content = json.loads((folder / "policy.json").read_text())
    content["twin"] = "os.system"
    (folder / "policy.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (truncate, r"policy\.npz is damaged: its checksum .* \(100 bytes"),
        (link, r"policy\.npz is a link, which an exported policy never has"),
        (add_pickle, r"agent\.pt may be a pickle, which can run code"),
        (set_version, r"policy\.json has format 'border_cli policy', version 7; .* version 2"),
        (break_json, r"policy\.json cannot be read"),
        (forge, r"policy\.json is damaged: KeyError: 'os\.system'"),
    ],
)
def test_what_is_damaged_or_strange_is_refused_by_name(
    home: Path, tmp_path: Path, capsys: Capture, damage: Any, told: str
) -> None:
    folder = copy_export(home, tmp_path)
    damage(folder)
    with pytest.raises(CheckpointError, match=told):
        load_policy(folder)
    assert export_status("--verify", str(folder)) == 2
    capsys.readouterr()


def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    home: Path, capsys: Capture
) -> None:
    for argv, message in (
        (["run", "to"], "to already exists: name a new folder"),
        (["run"], "give one run directory and one new folder, got 1"),
        (["nowhere", "new"], "no such directory: nowhere"),
        (["run", "new", "episods=3"], "unknown option 'episods', did you mean episodes?"),
        (["run", "new", "checkpoint=7"], "has no checkpoint 7"),
    ):
        assert export_status(*argv) == 2
        assert message in capsys.readouterr().err
    overrides = ("agent=random", "env=cartpole", "trainer=sync", "trainer.max_opt_steps=2")
    assert train_status(*overrides, "run_dir=luck", "evaluator.num_episodes=1") == 0
    assert export_status("luck", "new") == 2
    assert "agent=random cannot be exported" in capsys.readouterr().err
    assert not list(home.glob("*new*"))


def test_a_film_is_added_and_a_format_left_out(home: Path) -> None:
    assert export_status("run", "filmed", "film=true", "onnx=false", "episodes=1") == 0
    names = {path.name for path in (home / "filmed").iterdir()}
    assert names == FILES - {"policy.onnx"} | {"film.mp4"}
    assert (home / "filmed/film.mp4").stat().st_size > 1000


def test_a_folder_is_verified_where_it_is(capsys: Capture) -> None:
    assert export_status("--verify", "to", "--json") == 0
    lines = json.loads(capsys.readouterr().out)["verified"]
    assert [line.partition(":")[0] for line in lines] == [
        *("policy.npz", "policy.onnx", "model.safetensors")
    ]


def test_the_example_of_the_card_for_onnx_acts() -> None:
    text = Path("to/README.md").read_text(encoding="utf-8")
    _, example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"observations": np.zeros((3, 4), np.float32)}
    exec(example, names)
    assert names["action"].shape == (3,)
