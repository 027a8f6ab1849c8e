"""What a press of Tab offers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.config.complete import matches, shell_plugin
from border_cli.config.compose import Composer
from border_cli.core.errors import ConfigError

Write = Callable[[str, str], Path]


def test_options_settings_and_values() -> None:
    composer = Composer()
    assert {"agent=dqn", "agent=random", "agent=sac"} <= {*matches("bash", composer, [], "agent=")}
    assert matches("bash", composer, [], "agent=rand") == ["agent=random"]
    assert matches("bash", composer, ["agent=dqn"], "agent.lo") == ["agent.loss="]
    assert matches("fish", composer, ["agent=random"], "agent.lo") == []
    assert matches("zsh", composer, [], "agent.loss=") == ["agent.loss=huber"]


def test_schemas_are_not_offered() -> None:
    offered = matches("bash", Composer(), [], "")
    assert "env=" in offered
    assert not [each for each in offered if each.startswith("schema")]


def test_files_of_the_user_are_offered(folder: Path, write: Write) -> None:
    write("env/mine.yaml", "defaults: [cartpole, _self_]\n")
    assert matches("bash", Composer([f"file://{folder}"]), [], "env=m") == [
        "env=mine",
        "env=mountaincar",
    ]


def test_settings_that_do_not_compose_offer_nothing() -> None:
    assert matches("bash", Composer(), ["agent.gama=1"], "agent.ga") == []


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(ConfigError, match="no shell 'csh'; known: bash, fish, zsh"):
        shell_plugin("csh")
