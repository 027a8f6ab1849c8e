"""References in docstrings and comments: the files, settings, names and methods that they mention
exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import pytest

from border_cli.registry import GROUPS, register_builtin
from border_cli.settings.run import RunConfig

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "border_cli"
ROOMS = ("border_cli", "conf", "tests", "benchmarks")
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PATH = re.compile(r"(?<![\w/.<{*-])[\w.-]+(?:/[\w.-]+)+\.(?:py|yaml|md)\b")
OF_PACKAGE = re.compile(r"(?<![\w/.])border_cli(?:\.\w+)+")
DOTTED = re.compile(r"(?<![\w./:-])([a-z_]+)\.([a-z]\w*)(?![\w/:(])")
IN_MODULE = re.compile(r"(?<![\w./:-])([a-z_]+)\.([a-z_]+)\.([a-z_]\w*)")
IN_FILE = re.compile(r"`([a-z_/]+\.py): ([a-z_]+)`")  # in docs/inside/design.md
METHOD = re.compile(r"(?<![\w.:])([A-Z]\w+)\.([a-z_]\w*)")
OF_USERS = re.compile(r"\b(mine|my_\w+|my|own|first|lab|NAME|folder)\b|^\.hydra/")
SUFFIXES = {"py", "yaml", "md", "csv", "json", "npz", "pt", "onnx"}


class Prose(NamedTuple):
    """One docstring or comment."""

    file: Path
    line: int
    text: str


def comments_of(file: Path) -> Iterator[Prose]:
    """Yields the comments of a Python or YAML file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".yaml":
        for number, line in enumerate(text.splitlines(), 1):
            _, mark, comment = line.partition("#")
            if mark:
                yield Prose(file, number, comment)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(file, token.start[0], token.string)


def docstrings_of(file: Path) -> Iterator[Prose]:
    """Yields the docstrings of a Python file."""
    for node in ast.walk(tree_of(file)):
        docstring = ast.get_docstring(node) if isinstance(node, DEFINITIONS) else None
        if docstring:
            yield Prose(file, getattr(node, "lineno", 1), docstring)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def all_prose() -> list[Prose]:
    texts: list[Prose] = []
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            texts += [*comments_of(file), *docstrings_of(file)]
        for file in sorted((ROOT / room).rglob("*.yaml")):
            texts += comments_of(file)
    return texts


def mentions(pattern: re.Pattern[str]) -> Iterator[tuple[Prose, re.Match[str]]]:
    for prose in all_prose():
        for match in pattern.finditer(prose.text):
            yield prose, match


def told(missing: list[tuple[Prose, re.Match[str]]]) -> list[str]:
    return [f"{p.file.relative_to(ROOT)}:{p.line}: {match[0]}" for p, match in missing]


@cache
def names_of(file: Path) -> set[str]:
    """The names that a module defines or imports."""
    names = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, DEFINITIONS[1:]):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).rpartition(".")[2])
    return names


def exists_in_package(parts: list[str]) -> bool:
    """Returns whether border_cli has a module of this name, or a module with this name in it."""
    if parts == ["conf"]:  # the package as it is installed; here it stands beside
        return True
    place = PACKAGE
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
            continue
        file = place / f"{part}.py"
        if file.is_file():
            rest = parts[number + 1 :]
        else:
            file, rest = place / "__init__.py", parts[number:]
        return not rest or rest[0] in names_of(file)
    return True


@cache
def members() -> dict[str, set[str]]:
    """The methods, fields and attributes of each class of the package, inherited ones included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.ClassDef):
                inside = [*ast.walk(node)]
                own[node.name] = {
                    *(each.name for each in inside if isinstance(each, DEFINITIONS[1:])),
                    *(each.id for each in inside if isinstance(each, ast.Name)),
                    *(each.attr for each in inside if isinstance(each, ast.Attribute)),
                }
                bases[node.name] = [ast.unparse(base).partition("[")[0] for base in node.bases]

    def inherited(name: str) -> set[str]:
        return own.get(name, set()).union(*map(inherited, bases.get(name, [])))

    return {name: inherited(name) for name in own}


def test_files_that_are_mentioned_exist() -> None:
    places = (ROOT, PACKAGE, ROOT / "conf", ROOT / "docs", ROOT / "tests", PACKAGE / "template")
    missing = [
        (prose, match)
        for prose, match in mentions(PATH)
        if not OF_USERS.search(match[0])
        and not any((place / match[0]).exists() for place in (*places, prose.file.parent))
    ]
    assert told(missing) == []


def test_names_of_the_package_that_are_mentioned_exist() -> None:
    missing = [
        (prose, match)
        for prose, match in mentions(OF_PACKAGE)
        if not exists_in_package(match[0].split(".")[1:])
    ]
    assert told(missing) == []


def test_names_of_modules_that_are_mentioned_exist() -> None:
    packages = {folder.name for folder in PACKAGE.iterdir() if folder.is_dir()}
    missing = [
        (prose, match)
        for prose, match in mentions(IN_MODULE)
        if match[1] in packages
        and not (PACKAGE / match[1] / match[2]).is_dir()
        and match[1] not in GROUPS
        and not exists_in_package(match[0].split("."))
    ]
    assert told(missing) == []


def test_names_in_files_that_design_mentions_exist() -> None:
    text = (ROOT / "docs" / "inside" / "design.md").read_text(encoding="utf-8")
    missing = [
        match[0]
        for match in IN_FILE.finditer(text)
        if not any(match[2] in names_of(file) for file in PACKAGE.rglob(match[1]))
    ]
    assert missing == []


def test_settings_that_are_mentioned_exist() -> None:
    """A setting of any option of the group; also a module of the group's package, or a member of an
    object that has the group's name."""
    register_builtin()
    known = {
        group: {field.name for entry in registry for field in fields(entry.config_type)}
        for group, registry in GROUPS.items()
    }
    known |= {name: {field.name for field in fields(type(part))} for name, part in sections()}
    objects = {"env": {*dir(gym.Env), *dir(gym.vector.VectorEnv)}}
    for group, kind in (
        *(("agent", "Agent"), ("agent", "OnPolicyAgent"), ("trainer", "Trainer")),
        *(("env", "Env"), ("replay_buffer", "ReplayBuffer"), ("evaluator", "Evaluator")),
        *(("recorder", "Recorder"), ("callback", "Callback"), ("actor_manager", "ActorManager")),
        ("step_processor", "StepProcessor"),
    ):
        objects.setdefault(group, set()).update(members().get(kind, set()))
    missing = [
        (prose, match)
        for prose, match in mentions(DOTTED)
        if match[1] in known
        and match[2] not in known[match[1]] | objects.get(match[1], set())
        and not exists_in_package([match[1], match[2]])
        and match[2] not in SUFFIXES
        and "template" not in prose.file.parts  # about the components of its own project
        and not OF_USERS.search(match[0])
    ]
    assert told(missing) == []


def sections() -> Iterator[tuple[str, object]]:
    """Yields the sections of a run's settings that are no groups: checkpoint, sweep."""
    for field in fields(RunConfig):
        part = field.default_factory() if callable(field.default_factory) else None
        if is_dataclass(part):
            yield field.name, part


def test_methods_that_are_mentioned_exist() -> None:
    known = members()
    missing = [
        (prose, match)
        for prose, match in mentions(METHOD)
        if match[1] in known and match[2] not in known[match[1]]
    ]
    assert told(missing) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (PATH, "see trainer/gone.py"),
        (OF_PACKAGE, "border_cli.trainer.gone"),
        (DOTTED, "the setting trainer.gone, above"),
        (IN_MODULE, "calls config.gone.open_composer"),
        (IN_FILE, "used alone: `config/saved.py: gone`"),
        (METHOD, "`Ppo.gone` of all"),
    ],
)
def test_references_are_found(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
