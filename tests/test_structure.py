"""Import rules between the parts of border_cli (rooms in the design); unique class names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.agent.learning_agent import LearningAgent
from border_cli.registry import AGENTS, register_builtin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "border_cli"
DESIGN = (ROOT / "docs" / "inside" / "design.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Returns a section of docs/inside/design.md."""
    return DESIGN.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[list[str]]]:
    """Returns the names in all cells of the table rows that start with a name."""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line] for line in lines]


def allowed() -> dict[str, set[str]]:
    """Returns, for every part, the parts it may import; `border_cli` is the package itself."""
    table = {room: set(rooms) for (room,), _, rooms, _ in rows(section("Layout"))}
    for group in ("base", "parts"):
        members = table.pop(group)
        for rooms in table.values():
            if group in rooms:
                rooms.remove(group)
                rooms |= members
    return table


def restricted_packages() -> dict[str, set[str]]:
    """Returns, for every restricted third-party package, the parts that may import it."""
    importers: dict[str, set[str]] = {}
    for (room,), _, _, packages in rows(section("Layout")):
        for package in packages:
            importers.setdefault(package, set()).add(room)
    return importers


ALLOWED, FOREIGN = allowed(), restricted_packages()

# Optional parts around the core.
EDGE = {room for (room,), *_ in rows(section("Layout").split("\nThe edge")[1])}


def part_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """Yields line number and module of every import, at the top of the file or in functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            assert node.module
            if node.module == "border_cli":
                names = (alias.name for alias in node.names)
                yield from ((node.lineno, f"border_cli.{name}") for name in names)
            else:
                yield node.lineno, node.module


def core_of_the_design() -> tuple[list[Path], int]:
    """Returns the core files listed in the design, and the limit on their total lines."""
    text = section("The core")
    limit = re.search(r"at most ([\d,]+) lines", text)
    assert limit is not None
    return [PACKAGE / file for (file,), _ in rows(text)], int(limit[1].replace(",", ""))


def part_names() -> set[str]:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    return folders | {file.stem for file in PACKAGE.glob("*.py")}


def target_of(module: str) -> str:
    """Returns `agent` for border_cli.agent.dqn, and `border_cli` for names of the package."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in part_names() else "border_cli"


def wrong_imports(file: Path) -> list[str]:
    part = part_of(file)
    wrong = []
    for line, module in imported(file):
        top = module.split(".")[0]
        message = f"{file.relative_to(ROOT)}:{line}: {part} must not import {module}"
        if top == "border_cli":
            target = target_of(module)
            if target != part and target not in ALLOWED[part]:
                wrong.append(message)
        elif part not in FOREIGN.get(top, {part}):
            wrong.append(message)
    return wrong


def test_every_part_has_its_rule_and_every_rule_its_part() -> None:
    assert part_names() | {"template"} == set(ALLOWED)


def test_no_arrow_points_where_it_must_not() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    assert [arrow for file in files for arrow in wrong_imports(file)] == []


def test_the_core_is_as_small_as_the_design_says() -> None:
    files, limit = core_of_the_design()
    assert 15 < len(files) <= 25
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= limit


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


def test_agents_inherit_at_most_two_levels_below_their_base() -> None:
    register_builtin()
    kinds = [AGENTS.load(entry.config_type()) for entry in AGENTS]
    ours = [kind for kind in kinds if kind.__module__.startswith("border_cli.")]
    learners = [kind for kind in ours if issubclass(kind, LearningAgent)]
    assert len(learners) >= 12
    assert [kind.__name__ for kind in learners if kind.__mro__.index(LearningAgent) > 2] == []


def test_the_rules_allow_no_circle() -> None:
    def reachable(part: str) -> set[str]:
        targets: set[str] = set()
        todo = [part]
        while todo:
            for target in ALLOWED.get(todo.pop(), set()) - targets:
                targets.add(target)
                todo.append(target)
        return targets

    assert [part for part in ALLOWED if part in reachable(part)] == []


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
    assert len(wrong_imports(file)) == 1


def test_no_folder_of_the_package_is_missing_in_pyproject() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    folders = {f"border_cli.{file.parent.name}" for file in PACKAGE.glob("*/__init__.py")}
    assert [name for name in folders if f'"{name}",' not in text] == []


def module_imports(package: Path) -> dict[str, set[str]]:
    """Returns, for every module, the modules it imports, also in functions and for types."""
    files = {_dotted(path, package): path for path in package.rglob("*.py")}
    imports_by_module: dict[str, set[str]] = {}
    for name, file in files.items():
        imports: set[str | None] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
        imports_by_module[name] = imports & set(files) - {name}
    return imports_by_module


def _dotted(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def modules_in_cycles(package: Path) -> set[str]:
    """Returns the modules that import themselves through others."""
    imports = module_imports(package)

    def reachable(start: str) -> set[str]:
        modules: set[str] = set()
        todo = [start]
        while todo:
            new = imports[todo.pop()] - modules
            modules |= new
            todo += new
        return modules

    return {module for module in imports if module in reachable(module)}


def test_no_files_import_in_a_circle() -> None:
    assert modules_in_cycles(PACKAGE) == set()


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "egg.py").write_text("def f():\n    from planted import chicken\n")
    (package / "chicken.py").write_text("from planted.nest import NEST\n")
    (package / "nest.py").write_text("def f():\n    from planted.egg import f\n")
    (package / "fox.py").write_text("from planted import chicken\n")
    assert modules_in_cycles(package) == {"planted.egg", "planted.chicken", "planted.nest"}


def duplicate_classes(package: Path) -> dict[str, list[str]]:
    """Returns the class names that several modules define, with these modules."""
    modules: dict[str, list[str]] = {}
    for file in sorted(package.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}:
            modules.setdefault(name, []).append(_dotted(file, package))
    return {name: owners for name, owners in modules.items() if len(owners) > 1}


def test_no_two_modules_have_a_class_of_one_name() -> None:
    assert not duplicate_classes(PACKAGE)


def test_a_planted_duplicate_class_name_is_found(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "nest.py").write_text("class Egg:\n    pass\n\n\nclass Nest:\n    pass\n")
    (package / "pan.py").write_text("class Egg:\n    pass\n")
    assert duplicate_classes(package) == {"Egg": ["planted.nest", "planted.pan"]}
