"""The candidates that shell completion offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from border_cli.cli.complete import complete_other, complete_run, complete_study
from border_cli.system.files import SETTINGS


def test_groups_options_and_settings(folder: Path) -> None:
    assert folder
    assert {"agent=dqn", "agent=random", "agent=sac"} <= {*complete_run([], "agent=")}
    assert complete_run([], "agent=rand") == ["agent=random"]
    assert complete_run([], "agen") == ["agent.", "agent="]
    assert complete_run(["agent=dqn"], "agent.lo") == ["agent.loss="]
    assert complete_run(["agent=random"], "agent.lo") == []
    assert not [candidate for candidate in complete_run([], "") if candidate.startswith("schema")]


def test_files_of_the_user_are_offered(folder: Path) -> None:
    (folder / "env").mkdir()
    (folder / "env" / "mine.yaml").write_text("defaults: [cartpole, _self_]\n", encoding="utf-8")
    (folder / "env" / "mountain.yaml").write_text("defaults: [mountaincar, _self_]\n")
    assert complete_run(["-cd", str(folder)], "env=mine") == ["env=mine"]
    assert complete_run(["-cd", str(folder)], "env=mo") == [
        "env=mountain",
        "env=mountaincar",
        "env=mountaincar_continuous",
    ]


def test_a_list_and_a_sweep_complete_their_last_entry(folder: Path) -> None:
    assert folder
    assert complete_run([], "recorder=[jsonl,c") == ["recorder=[jsonl,console"]
    assert complete_run([], "agent=dqn,sa") == ["agent=dqn,sac"]


def test_settings_of_a_choice_are_those_of_its_files(folder: Path) -> None:
    assert folder
    assert complete_run(["agent=sac"], "agent.crit") == [
        "agent.critic_hidden=",
        "agent.critic_layer_norm=",
        "agent.critic_learning_rate=",
    ]
    assert complete_run(["agent=rainbow"], "replay_buffer.al") == ["replay_buffer.alpha="]
    assert complete_run([], "replay_buffer.al") == []
    assert complete_run(["no=such", "--flag"], "agent.") == []
    assert complete_run(["agent=dqqn"], "agent.") == []


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
        assert complete_run([], f"resume={typed}") == [f"resume={path}" for path in paths]
        assert complete_run(["--from"], typed) == paths
        assert complete_other(command, [], typed) == paths


def test_border_tune_completes_its_keys_its_spaces_and_the_settings_of_its_runs(
    folder: Path,
) -> None:
    assert folder
    assert complete_study(["study=mine", "agent=dqn"], "agent.lo") == ["agent.loss="]
    assert complete_study([], "search=qr") == ["search=qrdqn"]
    assert complete_study([], "s") == [
        *("study=", "seeds=", "search=", "sampler=", "score=", "storage="),
        *complete_run([], "s"),
    ]


def test_the_other_commands_complete_what_their_help_lists(folder: Path) -> None:
    assert folder
    assert complete_other("border-eval", ["RUN"], "ch") == ["checkpoint="]
    assert complete_other("border-runs", [], "pr") == ["prune"]
    assert complete_other("border-runs", [], "--s") == ["--sort"]
    assert complete_other("border-plot", ["S", "--out"], "") == []


def test_hydra_is_imported_only_to_complete_the_settings_of_a_choice(folder: Path) -> None:
    words = ["", "agent=", "see", "resume=", "--re"]
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from border_cli.cli.complete import complete_run\n"
            f"print([bool(complete_run([], word)) for word in {words}], 'hydra' in sys.modules)",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == "[True, True, True, False, True] False\n"
