"""The search order of config directories, including those of plug-ins."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import border_cli
from border_cli.config.compose import Composer, compose
from border_cli.config.search_path import user_folders
from border_cli.errors import ConfigError
from border_cli.system.files import SETTINGS

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


def test_a_folder_that_is_not_there_is_refused_with_its_origin(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BORDER_CONFIG_PATH", "y")
    with pytest.raises(ConfigError, match=rf"\$BORDER_CONFIG_PATH: no such directory: {folder}/y"):
        user_folders()


def test_a_home_directory_of_an_unknown_user_is_refused() -> None:
    paths: list[Callable[[str], object]] = [
        lambda path: user_folders([path]),
        lambda path: Composer().job(["env=cartpole", f"run_dir='{path}'"]),
        border_cli.load_policy,
        border_cli.resume,
    ]
    for use in paths:
        with pytest.raises(ConfigError, match="~nobody_here/x: there is no user of this name"):
            use("~nobody_here/x")


def install_plugin(folder: Path, write: Write, body: str) -> None:
    """Installs a package with an entry point, as pip would."""
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
    said = rf"plug-in 'own' \(own_plugin:register\) failed: {folder}/own_plugin.py:2: KeyError: 'x'"
    with pytest.raises(ConfigError, match=said):
        compose()
    (folder / "own_plugin.py").unlink()
    del sys.modules["own_plugin"]
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match=r"failed: .*No module named 'own_plugin'"):
        compose()


DECLARED = """\
[project.entry-points."border_cli.plugins"]
own = "own_plugin:register"
"""


@pytest.fixture
def elsewhere(folder: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository in the current directory, which is not on `sys.path`."""
    write("own_plugin.py", f"def register():\n    return {str(folder / 'theirs')!r}\n")
    write("theirs/env/own.yaml", preset(5))
    write("pyproject.toml", DECLARED)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(folder)])
    return folder


@pytest.mark.usefixtures("own_modules", "elsewhere")
def test_a_plugin_that_the_project_here_declares_needs_no_installation() -> None:
    config = compose("env=own")
    assert config.env.max_episode_steps == 5
    assert config.imports == ["own_plugin"]


@pytest.mark.usefixtures("own_modules", "elsewhere")
def test_a_declared_plugin_that_is_installed_as_well_is_called_once(
    folder: Path, write: Write
) -> None:
    body = "calls = []\n\ndef register():\n    calls.append(1)\n"
    sys.path.append(str(folder))
    install_plugin(folder, write, body)
    assert compose("env=cartpole").imports == ["own_plugin"]
    assert sys.modules["own_plugin"].calls == [1]


@pytest.mark.usefixtures("own_modules", "elsewhere")
def test_a_run_directory_brings_no_plugin_of_its_own(write: Write) -> None:
    write(str(SETTINGS), "")
    assert user_folders() == []
    assert "own_plugin" not in sys.modules


@pytest.mark.usefixtures("own_modules", "elsewhere")
@pytest.mark.parametrize(
    "text",
    [
        DECLARED.replace("]", ""),
        '[project]\nentry-points = "border_cli.plugins"\n',
        '[project.entry-points]\n"border_cli.plugins" = "own_plugin:register"\n',
    ],
)
def test_a_project_that_cannot_be_read_is_named(text: str, write: Write) -> None:
    write("pyproject.toml", text)
    with pytest.raises(ConfigError, match=r"^pyproject\.toml cannot be read: "):
        compose()


@pytest.mark.usefixtures("own_modules", "elsewhere")
def test_other_projects_are_left_alone(write: Write) -> None:
    write("pyproject.toml", "[project\n")
    assert user_folders() == []
