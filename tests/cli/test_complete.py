"""What a press of Tab offers."""

from __future__ import annotations

from pathlib import Path

from border_cli.cli.complete import offered


def test_groups_options_and_settings(folder: Path) -> None:
    assert folder
    assert {"agent=dqn", "agent=random", "agent=sac"} <= {*offered([], "agent=")}
    assert offered([], "agent=rand") == ["agent=random"]
    assert offered([], "agen") == ["agent.", "agent="]
    assert offered(["agent=dqn"], "agent.lo") == ["agent.loss="]
    assert offered(["agent=random"], "agent.lo") == []
    assert not [each for each in offered([], "") if each.startswith("schema")]


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
