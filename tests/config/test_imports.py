"""User modules with components, imported on the command line, by files and by saved runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.config.job import resolved_yaml, write_resolved
from border_cli.config.saved import load_resolved
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError

Write = Callable[[str, str], Path]

MODULE = """
from dataclasses import dataclass
from border_cli.settings.run import AgentConfig
from border_cli.settings.base import setting
from border_cli.registry import AGENTS

@dataclass(kw_only=True)
class MineConfig(AgentConfig):
    \"\"\"An agent of the user.\"\"\"

    courage: float = setting(0.5, "how brave", low=0, high=1)

AGENTS.register("NAME", MineConfig, "MODULE:Mine")
"""


@pytest.fixture
def mine(own_modules: None, write: Write, request: pytest.FixtureRequest) -> str:
    """Writes a module that registers an agent, and its config file; returns the name they share."""
    assert own_modules is None
    name = f"own_{abs(hash(request.node.name))}"
    write(f"{name}.py", MODULE.replace("NAME", name).replace("MODULE", name))
    write(f"agent/{name}.yaml", f"defaults: [/schema/agent/{name}@_here_, _self_]\ncourage: 0.75\n")
    return name


def courage(config: object) -> float:
    return config.agent.courage  # type: ignore[attr-defined, no-any-return]


def test_one_name_without_brackets(mine: str, folder: Path) -> None:
    assert courage(compose(f"imports={mine}", f"agent={mine}", config_dir=str(folder))) == 0.75


def test_in_a_swept_experiment(mine: str, folder: Path, write: Write) -> None:
    header = "# @package _global_\n"
    write(
        "experiment/x.yaml",
        f"{header}defaults: [override /agent: {mine}]\nimports: [{mine}]\n",
    )
    write("experiment/y.yaml", f"{header}seed: 2\n")
    composer = Composer([f"file://{folder}"])
    jobs = sweep_terms(composer, ["experiment=x,y"]).jobs
    assert jobs is not None
    configs = [composer.job(job, number).config for number, job in enumerate(jobs)]
    assert [config.imports for config in configs] == [[mine], []]
    assert courage(configs[0]) == 0.75


def test_all_that_is_named_is_imported_and_saved(mine: str, folder: Path, write: Write) -> None:
    write("own_other.py", "")
    write("experiment/x.yaml", f"# @package _global_\nimports: [{mine}]\n")
    config = compose("experiment=x", f"agent={mine}", "imports=[own_other]", config_dir=str(folder))
    assert config.imports == [mine, "own_other"]


def test_a_saved_run_imports_what_it_needs(mine: str, folder: Path) -> None:
    config = compose(f"agent={mine}", f"imports=[{mine}]", config_dir=str(folder))
    write_resolved(folder / "run", resolved_yaml(config))
    assert load_resolved(folder / "run") == config


@pytest.mark.usefixtures("own_modules")
def test_a_module_that_fails_is_named_with_its_line(write: Write) -> None:
    write("own_broken.py", "x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError, match=r"'own_broken' cannot .*own_broken.py:2: ZeroDivisionE"):
        compose("imports=[own_broken]")


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize("module", ["idlelib.idle", "test.__main__"])
def test_a_program_of_the_standard_library_is_not_run(module: str, write: Write) -> None:
    write("experiment/x.yaml", f"# @package _global_\nimports: [{module}]\n")
    with pytest.raises(ConfigError, match=f"^imports: '{module}' is part of Python's standard lib"):
        compose("experiment=x", config_dir=".")
    assert module not in sys.modules


@pytest.mark.usefixtures("own_modules")
def test_a_module_that_needs_another_says_which(write: Write) -> None:
    write("own_needy.py", "import no_such_thing\n")
    with pytest.raises(ConfigError, match=r"own_needy.py:1: Module.*'no_such_thing'"):
        compose("imports=[own_needy]")
