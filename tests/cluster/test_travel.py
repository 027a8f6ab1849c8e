"""Which code travels to the nodes of a cluster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.cluster.travel import modules_of_recipe, runtime_env, travelling
from border_cli.core.errors import ClusterRefused


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of the user's: a package that needs a module beside it, and one nobody needs."""
    package = tmp_path / "my_travelling_agents"
    for folder in ("", "data", "outputs", ".git", "__pycache__", "venv", "a_run"):
        (package / folder).mkdir(parents=True, exist_ok=True)
        (package / folder / "file.txt").write_text("x")
    (package / "venv" / "pyvenv.cfg").touch()
    (package / "a_run" / "run.json").touch()
    (package / "__init__.py").write_text("import my_travelling_tools, gymnasium\nclass A: pass\n")
    (tmp_path / "my_travelling_tools.py").touch()
    (tmp_path / "my_other_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("my_travelling_agents")
    yield tmp_path
    for name in ("my_travelling_agents", "my_travelling_tools"):
        del sys.modules[name]


def test_only_modules_of_the_users_own_travel_with_what_they_import_beside_them(home: Path) -> None:
    found = travelling(["my_travelling_agents.inner", "gymnasium", "border_cli.agent.dqn"])
    assert [each.name for each in found] == ["my_travelling_agents", "my_travelling_tools"]
    assert travelling(["gymnasium", "json", "border_cli"]) == []
    assert found[0].path == str(home / "my_travelling_agents")


def test_runs_and_environments_do_not_travel(home: Path, tmp_path: Path) -> None:
    assert home
    copies = tmp_path / "copies"
    sent = runtime_env(travelling(["my_travelling_agents"]), copies)
    assert sent is not None
    assert sorted(sent["py_modules"]) == [
        str(copies / "my_travelling_agents"),
        str(copies / "my_travelling_tools.py"),
    ]
    files = [each.relative_to(copies) for each in copies.rglob("*") if each.is_file()]
    assert sorted(map(str, files)) == [
        "my_travelling_agents/__init__.py",
        "my_travelling_agents/data/file.txt",
        "my_travelling_agents/file.txt",
        "my_travelling_tools.py",
    ]
    assert runtime_env([], copies) is None


def test_what_is_too_large_is_refused_with_its_largest_files(home: Path) -> None:
    (home / "my_travelling_agents" / "data" / "table.npy").write_bytes(bytes(2 * 2**20))
    with pytest.raises(ClusterRefused, match=r"2 MB would travel.*largest: .*table.npy 2 MB"):
        travelling(["my_travelling_agents"], most_nbytes=2**20)


def test_a_recipe_names_the_modules_of_its_classes(home: Path) -> None:
    assert home
    agent = sys.modules["my_travelling_agents"].A
    assert "my_travelling_agents" in modules_of_recipe([agent(), {"x": Path}])


def test_the_script_itself_cannot_travel() -> None:
    with pytest.raises(ClusterRefused, match="move what actors use from it into a module"):
        travelling(["__main__"])
