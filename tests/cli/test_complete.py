"""The candidates that shell completion offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from border_cli.cli.complete import of_another, of_study, offered
from border_cli.system.files import SETTINGS


def test_groups_options_and_settings(folder: Path) -> None:
    assert folder
    assert {"agent=dqn", "agent=random", "agent=sac"} <= {*offered([], "agent=")}
    assert offered([], "agent=rand") == ["agent=random"]
    assert offered([], "agen") == ["agent.", "agent="]
    assert offered(["agent=dqn"], "agent.lo") == ["agent.loss="]
    assert offered(["agent=random"], "agent.lo") == []
    assert not [candidate for candidate in offered([], "") if candidate.startswith("schema")]


def test_files_of_the_user_are_offered(folder: Path) -> None:
    (folder / "env").mkdir()
    (folder / "env" / "mine.yaml").write_text("defaults: [cartpole, _self_]\n", encoding="utf-8")
    (folder / "env" / "mountain.yaml").write_text("defaults: [mountaincar, _self_]\n")
    assert offered(["-cd", str(folder)], "env=mine") == ["env=mine"]
    assert offered(["-cd", str(folder)], "env=mo") == [
        "env=mountain",
        "env=mountaincar",
        "env=mountaincar_continuous",
    ]


def test_a_list_and_a_sweep_complete_their_last_entry(folder: Path) -> None:
    assert folder
    assert offered([], "recorder=[jsonl,c") == ["recorder=[jsonl,console"]
    assert offered([], "agent=dqn,sa") == ["agent=dqn,sac"]


def test_settings_of_a_choice_are_those_of_its_files(folder: Path) -> None:
    assert folder
    assert offered(["agent=sac"], "agent.crit") == [
        "agent.critic_hidden=",
        "agent.critic_layer_norm=",
        "agent.critic_learning_rate=",
    ]
    assert offered(["agent=rainbow"], "replay_buffer.al") == ["replay_buffer.alpha="]
    assert offered([], "replay_buffer.al") == []
    assert offered(["no=such", "--flag"], "agent.") == []
    assert offered(["agent=dqqn"], "agent.") == []


@pytest.mark.parametrize(
    "command", ["border-eval", "border-export", "border-plot", "border-record", "border-runs"]
)
def test_run_directories_are_offered_a_folder_at_a_time(folder: Path, command: str) -> None:
    for run in ("outputs/dqn/1", "outputs/dqn/2", "mine"):
        (folder / run / SETTINGS).parent.mkdir(parents=True)
        (folder / run / SETTINGS).touch()
    (folder / "outputs/empty").mkdir()
    (folder / "sources/outputs").mkdir(parents=True)
    for typed, paths in (
        ("mi", ["mine"]),
        ("out", ["outputs/"]),
        ("outputs/", ["outputs/dqn/"]),
        ("./outputs/dqn/", ["./outputs/dqn/1", "./outputs/dqn/2"]),
        ("outputs/dqn/1/", []),
        ("none/", []),
    ):
        assert offered([], f"resume={typed}") == [f"resume={path}" for path in paths]
        assert offered(["--from"], typed) == paths
        assert of_another(command, [], typed) == paths


def test_border_tune_completes_its_keys_its_spaces_and_the_settings_of_its_runs(
    folder: Path,
) -> None:
    assert folder
    assert of_study(["study=mine", "agent=dqn"], "agent.lo") == ["agent.loss="]
    assert of_study([], "search=qr") == ["search=qrdqn"]
    assert of_study([], "s") == [
        *("study=", "seeds=", "search=", "sampler=", "score=", "storage="),
        *offered([], "s"),
    ]


def test_the_other_commands_complete_what_their_help_lists(folder: Path) -> None:
    assert folder
    assert of_another("border-eval", ["RUN"], "ch") == ["checkpoint="]
    assert of_another("border-runs", [], "pr") == ["prune"]
    assert of_another("border-runs", [], "--s") == ["--sort"]
    assert of_another("border-plot", ["S", "--out"], "") == []


def test_hydra_is_imported_only_to_complete_the_settings_of_a_choice(folder: Path) -> None:
    words = ["", "agent=", "see", "resume=", "--re"]
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from border_cli.cli.complete import offered\n"
            f"print([bool(offered([], word)) for word in {words}], 'hydra' in sys.modules)",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == "[True, True, True, False, True] False\n"
