"""Whose file is found first."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.config.search_path import user_folders
from border_cli.core.errors import ConfigError

Write = Callable[[str, str], Path]


def preset(seconds: int) -> str:
    return f"defaults: [gym, _self_]\nid: A-v0\nmax_episode_steps: {seconds}\n"


def test_the_first_folder_wins_then_the_variable_then_ours(
    folder: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a/env/cartpole.yaml", preset(1))
    write("b/env/cartpole.yaml", preset(2))
    write("b/env/acrobot.yaml", preset(3))
    write("c/env/acrobot.yaml", preset(4))
    monkeypatch.setenv("BORDER_CONFIG_PATH", f"b{os.pathsep}{folder}/c")
    folders = user_folders(["a"])
    assert folders == [f"file://{folder}/{name}" for name in "abc"]
    composer = Composer(folders)
    steps = [
        composer.job([f"env={name}"]).config.env.max_episode_steps
        for name in ("cartpole", "acrobot", "mountaincar")
    ]
    assert steps == [1, 3, None]


def test_the_current_folder_is_never_searched_by_itself(folder: Path, write: Write) -> None:
    assert folder
    write("conf/env/cartpole.yaml", preset(1))
    assert compose("env=cartpole").env.max_episode_steps is None


def test_a_folder_that_is_not_there_is_refused_with_its_origin(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=rf"--config-dir: no such directory: {folder}/x"):
        user_folders(["x"])
    monkeypatch.setenv("BORDER_CONFIG_PATH", "y")
    with pytest.raises(ConfigError, match=rf"\$BORDER_CONFIG_PATH: no such directory: {folder}/y"):
        user_folders()


def install_plugin(folder: Path, write: Write, body: str) -> None:
    """A package with an entry point, as pip would leave it."""
    write("own_plugin.py", body)
    write(
        "own_plugin-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: own_plugin\nVersion: 1\n"
    )
    write(
        "own_plugin-1.dist-info/entry_points.txt",
        "[border_cli.plugins]\nown = own_plugin:register\n",
    )
    assert str(folder) in sys.path


@pytest.mark.usefixtures("own_modules")
def test_an_installed_plugin_registers_and_brings_a_folder(folder: Path, write: Write) -> None:
    install_plugin(folder, write, f"def register():\n    return {str(folder / 'theirs')!r}\n")
    write("theirs/env/own.yaml", preset(5))
    assert compose("env=own").env.max_episode_steps == 5


@pytest.mark.usefixtures("own_modules")
def test_a_plugin_that_fails_is_named(folder: Path, write: Write) -> None:
    install_plugin(folder, write, "def register():\n    raise KeyError('x')\n")
    with pytest.raises(ConfigError, match=r"plug-in 'own' \(own_plugin:register\) failed: KeyErr"):
        compose()
