"""The modules that are sent to the nodes of a cluster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.errors import ClusterRefused
from border_cli.ray.travel import find_own_modules
from border_cli.system.start import modules_of_recipe


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package, a module that the package imports, and an unused module."""
    package = tmp_path / "my_travelling_agents"
    package.mkdir()
    (package / "__init__.py").write_text("import my_travelling_tools, gymnasium\nclass A: pass\n")
    (tmp_path / "my_travelling_tools.py").touch()
    (tmp_path / "my_other_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("my_travelling_agents")
    yield tmp_path
    for name in ("my_travelling_agents", "my_travelling_tools"):
        del sys.modules[name]


def test_only_modules_of_the_users_own_travel_with_what_they_import_beside_them(home: Path) -> None:
    paths = find_own_modules(["my_travelling_agents.inner", "gymnasium", "border_cli.agent.dqn"])
    assert paths == [str(home / "my_travelling_agents"), str(home / "my_travelling_tools.py")]
    assert find_own_modules(["gymnasium", "json", "border_cli"]) == []


def test_a_recipe_names_the_modules_of_its_classes(home: Path) -> None:
    assert home
    agent = sys.modules["my_travelling_agents"].A
    assert "my_travelling_agents" in modules_of_recipe([agent(), {"x": Path}])


def test_the_script_itself_cannot_travel() -> None:
    with pytest.raises(ClusterRefused, match="move what actors and evaluations use from it"):
        find_own_modules(["__main__"])
