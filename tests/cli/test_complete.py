"""What a press of Tab offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.cli.complete import matches
from border_cli.config.compose import Composer


def test_options_settings_and_values() -> None:
    composer = Composer()
    assert {"agent=dqn", "agent=random", "agent=sac"} <= {*matches(composer, [], "agent=")}
    assert matches(composer, [], "agent=rand") == ["agent=random"]
    assert matches(composer, ["agent=dqn"], "agent.lo") == ["agent.loss="]
    assert matches(composer, ["agent=random"], "agent.lo") == []
    assert matches(composer, [], "agent.loss=") == ["agent.loss=huber", "agent.loss=mse"]


def test_schemas_are_not_offered() -> None:
    offered = matches(Composer(), [], "")
    assert "env=" in offered
    assert not [each for each in offered if each.startswith("schema")]


def test_files_of_the_user_are_offered(folder: Path) -> None:
    (folder / "env").mkdir()
    (folder / "env" / "mine.yaml").write_text("defaults: [cartpole, _self_]\n", encoding="utf-8")
    (folder / "env" / "mountain.yaml").write_text("defaults: [mountaincar, _self_]\n")
    source = f"file://{folder}"
    assert matches(Composer([source]), [], "env=mine") == ["env=mine"]
    assert matches(Composer([source]), [], "env=mo") == [
        "env=mountain",
        "env=mountaincar",
        "env=mountaincar_continuous",
    ]


def test_choices_complete_every_value() -> None:
    composer = Composer()
    assert matches(composer, [], "device=") == ["device=auto", "device=cpu", "device=cuda"]
    assert matches(composer, [], "agent.double=t") == ["agent.double=true"]
    assert matches(composer, [], "agent.gamma=") == ["agent.gamma=0.99"]  # cannot be listed


def test_a_list_and_a_sweep_complete_their_last_entry() -> None:
    composer = Composer()
    assert matches(composer, [], "recorder=[jsonl,") == [
        f"recorder=[jsonl,{each}" for each in ("console", "none", "tensorboard")
    ]
    assert matches(composer, [], "agent=dqn,sa") == ["agent=dqn,sac"]
    assert matches(composer, [], "agent.loss=mse,") == ["agent.loss=mse,huber"]
    assert matches(composer, [], "recorder=[jsonl]") == []


@pytest.mark.parametrize("key", ["resume", "init_from", "run_dir"])
def test_paths_complete_directories_and_end_at_a_run(key: str, folder: Path) -> None:
    (folder / "outputs" / "a run" / ".hydra").mkdir(parents=True)
    (folder / "outputs" / "a run" / ".hydra" / "resolved.yaml").touch()
    (folder / "other").mkdir()
    (folder / "file").touch()
    (folder / ".hidden").mkdir()
    composer = Composer()
    assert matches(composer, [], f"{key}=o") == [f"{key}=other/", f"{key}=outputs/"]
    assert matches(composer, [], f"{key}=outputs/") == [f"{key}=outputs/a run"]
    assert matches(composer, [], f"{key}=.") == [f"{key}=.hidden/"]
    assert matches(composer, [], f"{key}=nowhere/") == []


def test_resume_completes_auto_too(folder: Path) -> None:
    assert not list(folder.iterdir())
    assert matches(Composer(), [], "resume=") == ["resume=auto"]
