"""Which part may import which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "border_cli"
GROUPS = (
    "agent",
    "env",
    "step_processor",
    "replay_buffer",
    "actor_manager",
    "evaluator",
    "recorder",
)
BASE = {"words", "errors", "settings", "core", "system"}
PARTS = {*BASE, *("messages", "registry", "nn", "run", "trainer", "dataset"), *GROUPS}

ALLOWED: dict[str, set[str]] = {
    "words": set(),
    "errors": {"words"},
    "messages": {"words"},
    "settings": {"words", "errors"},
    "core": {"words", "errors", "settings"},
    "system": {"words", "errors", "settings", "core"},
    "registry": BASE,
    "nn": BASE,
    "run": BASE,
    "trainer": BASE | {"registry"},
    "config": BASE | {"registry", "run", "hydra_plugin"},
    "hydra_plugin": set(),
    **{group: BASE | {"registry"} for group in GROUPS},
    "agent": BASE | {"registry", "nn"},
    # An engine: it runs actors, evaluations and jobs in its own way.
    "ray": BASE | {"registry", "actor_manager", "evaluator", "sweep"},
    "dataset": BASE,
    # From settings to a running run: what puts the parts together may know all of them.
    "launch": PARTS | {"config", ""},
    "api": PARTS | {"launch", "config", ""},
    "sweep": PARTS | {"launch", "config", "hydra_plugin", ""},
    "analysis": BASE | {"run", "recorder"},
    # The terminal is shared with the panel, and the statistics of a run are shown as tables.
    "cli": {
        *BASE,
        *("messages", "registry", "run", "config", "launch", "sweep", "api", ""),
        *("recorder", "trainer", "dataset", "analysis"),
    },
    # A repository of a user, who needs neither the program's inside nor other components.
    "template": BASE | {"registry", "nn", "agent", ""},
    "__main__": {"cli"},
    "__init__": BASE | {"config", "api", "analysis"},
}

# What is built around the core, and could be left away from what it promises.
EDGE = {
    *("analysis", "cli", "ray", "config", "dataset", "evaluator"),
    *("launch", "recorder", "run", "template"),
}

FOREIGN = {
    "torch": {"agent", "nn", "template"},
    "multiprocessing": {"system", "actor_manager", "evaluator", "ray", "sweep"},
    "gymnasium": {"env", "template"},
    "minari": {"dataset"},
    "ray": {"ray"},
    "hydra": {"config", "sweep", "cli", "hydra_plugin"},
    "omegaconf": {"config", "sweep", "cli", "hydra_plugin"},
    "optuna": {"sweep"},
    "sqlalchemy": {"sweep"},
    "yaml": {"config", "cli", "run"},
    "pandas": {"analysis"},
    "matplotlib": {"analysis"},
    "rich": {"recorder", "launch", "sweep", "cli"},
    "plotext": {"analysis"},
    "PIL": {"evaluator"},
    "imageio_ffmpeg": {"evaluator"},
    "psutil": {"system", "run"},
}


def part_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            assert node.module
            if node.module == "border_cli":
                names = (each.name for each in node.names)
                yield from ((node.lineno, f"border_cli.{name}") for name in names)
            else:
                yield node.lineno, node.module


def core_of_the_design() -> tuple[list[Path], int]:
    """The files that docs/design.md lists as the core, and the most lines that it gives them."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = text.split("### The core\n")[1].split("\n### ")[0]
    files = [PACKAGE / name for name in re.findall(r"^\| `(.+\.py)` \|", section, re.MULTILINE)]
    limit = re.search(r"at most ([\d,]+) lines", section)
    assert limit is not None
    return files, int(limit[1].replace(",", ""))


def parts_known() -> set[str]:
    folders = {each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists()}
    return folders | {file.stem for file in PACKAGE.glob("*.py")}


def target_of(module: str) -> str:
    """`agent` of border_cli.agent.dqn; empty for a name of the package itself."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in parts_known() else ""


def wrong_arrows(file: Path) -> list[str]:
    part = part_of(file)
    wrong = []
    for line, module in imported(file):
        top = module.split(".")[0]
        here = f"{file.relative_to(ROOT)}:{line}: {part} must not import {module}"
        if top == "border_cli":
            target = target_of(module)
            if target != part and target not in ALLOWED[part]:
                wrong.append(here)
        elif part not in FOREIGN.get(top, {part}):
            wrong.append(here)
    return wrong


def test_every_part_has_its_rule() -> None:
    assert parts_known() <= set(ALLOWED)


def test_no_arrow_points_where_it_must_not() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    assert [arrow for file in files for arrow in wrong_arrows(file)] == []


def test_the_core_is_as_small_as_the_design_says() -> None:
    files, limit = core_of_the_design()
    assert 15 < len(files) <= 25
    assert sum(len(each.read_text(encoding="utf-8").splitlines()) for each in files) <= limit


def test_the_core_imports_no_room_of_the_edge() -> None:
    files, _ = core_of_the_design()
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {module}"
        for file in files
        if part_of(file) != "launch"
        for line, module in imported(file)
        if target_of(module) in EDGE
    ]
    assert wrong == []


def test_the_rules_allow_no_circle() -> None:
    def reached(part: str) -> set[str]:
        found: set[str] = set()
        todo = [part]
        while todo:
            for target in ALLOWED.get(todo.pop(), set()) - {""} - found:
                found.add(target)
                todo.append(target)
        return found

    assert [part for part in ALLOWED if part in reached(part)] == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("agent/dqn.py", "from border_cli.env.config import GymConfig"),
        ("core/types.py", "import torch"),
        ("trainer/trainer.py", "from border_cli import agent"),
        ("run/folders.py", "def f():\n    import gymnasium.spaces"),
        ("env/gym.py", "import omegaconf"),
    ],
)
def test_a_wrong_arrow_is_found(
    place: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for part in ("agent", "env"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").touch()
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(line, encoding="utf-8")
    assert len(wrong_arrows(file)) == 1


def test_no_folder_of_the_package_is_missing_in_pyproject() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    folders = {f"border_cli.{each.parent.name}" for each in PACKAGE.glob("*/__init__.py")}
    assert [each for each in folders if f'"{each}",' not in text] == []


def arrows(package: Path) -> dict[str, set[str]]:
    """For each file of the package the files that it imports, wherever in it, for types as well."""
    files = {_dotted(each, package): each for each in package.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        imports: set[str | None] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imports |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
            elif isinstance(node, ast.Import):
                imports |= {each.name for each in node.names}
        found[name] = imports & set(files) - {name}
    return found


def _dotted(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def in_circles(package: Path) -> set[str]:
    """The files from which an arrow leads back to themselves over others."""
    known = arrows(package)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            new = known[todo.pop()] - found
            found |= new
            todo += new
        return found

    return {each for each in known if each in reached(each)}


def silent(package: Path) -> set[str]:
    """The files that import inside a function and do not say in their docstring what and why."""
    found = set()
    for file in package.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        inside = [node for each in functions for node in ast.walk(each)]
        imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in inside)
        said = " ".join((ast.get_docstring(tree) or "").split())
        if imports and not re.search(r"\b(is|are) imported by\b", said):
            found.add(_dotted(file, package))
    return found


def test_no_files_import_in_a_circle() -> None:
    assert in_circles(PACKAGE) == set()


def test_a_file_that_imports_inside_a_function_says_so() -> None:
    assert silent(PACKAGE) == set()


def test_a_planted_circle_and_a_silent_import_are_found(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    inside = "def f():\n    from planted import chicken\n"
    (package / "egg.py").write_text(f'"""Chickens are imported by f."""\n{inside}')
    (package / "chicken.py").write_text("from planted.nest import NEST\n")
    (package / "nest.py").write_text("def f():\n    from planted.egg import f\n")
    (package / "fox.py").write_text("from planted import chicken\n")
    assert in_circles(package) == {"planted.egg", "planted.chicken", "planted.nest"}
    assert silent(package) == {"planted.nest"}
