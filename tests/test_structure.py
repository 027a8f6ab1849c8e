"""Which part may import which, and what only one module may define."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.agent.torch_agent import TorchAgent
from border_cli.registry import AGENTS, register_builtin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "border_cli"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """A section of docs/design.md."""
    return DESIGN.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[list[str]]]:
    """The names in the cells of each row that begins with a name."""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line] for line in lines]


def allowed() -> dict[str, set[str]]:
    """The rooms that each room may import; border_cli stands for its own names."""
    table = {room: set(rooms) for (room,), _, rooms, _ in rows(section("Layout"))}
    for group in ("base", "parts"):
        members = table.pop(group)
        for rooms in table.values():
            if group in rooms:
                rooms.remove(group)
                rooms |= members
    return table


def of_packages() -> dict[str, set[str]]:
    """The rooms that may import each package that is not free to all."""
    found: dict[str, set[str]] = {}
    for (room,), _, _, packages in rows(section("Layout")):
        for package in packages:
            found.setdefault(package, set()).add(room)
    return found


ALLOWED, FOREIGN = allowed(), of_packages()

# What is built around the core, and could be left away from what it promises.
EDGE = {room for (room,), *_ in rows(section("Layout").split("\nThe edge")[1])}


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
    text = section("The core")
    limit = re.search(r"at most ([\d,]+) lines", text)
    assert limit is not None
    return [PACKAGE / file for (file,), _ in rows(text)], int(limit[1].replace(",", ""))


def parts_known() -> set[str]:
    folders = {each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists()}
    return folders | {file.stem for file in PACKAGE.glob("*.py")}


def target_of(module: str) -> str:
    """`agent` of border_cli.agent.dqn; `border_cli` for a name of the package itself."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in parts_known() else "border_cli"


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


def test_every_part_has_its_rule_and_every_rule_its_part() -> None:
    assert parts_known() | {"template"} == set(ALLOWED)


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


def test_agents_inherit_at_most_two_levels_below_their_base() -> None:
    register_builtin()
    kinds = [AGENTS.load(entry.config_type()) for entry in AGENTS]
    ours = [kind for kind in kinds if kind.__module__.startswith("border_cli.")]
    learners = [kind for kind in ours if issubclass(kind, TorchAgent)]
    assert len(learners) >= 12
    assert [kind.__name__ for kind in learners if kind.__mro__.index(TorchAgent) > 2] == []


def test_the_rules_allow_no_circle() -> None:
    def reached(part: str) -> set[str]:
        found: set[str] = set()
        todo = [part]
        while todo:
            for target in ALLOWED.get(todo.pop(), set()) - found:
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


def test_no_files_import_in_a_circle() -> None:
    assert in_circles(PACKAGE) == set()


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "egg.py").write_text("def f():\n    from planted import chicken\n")
    (package / "chicken.py").write_text("from planted.nest import NEST\n")
    (package / "nest.py").write_text("def f():\n    from planted.egg import f\n")
    (package / "fox.py").write_text("from planted import chicken\n")
    assert in_circles(package) == {"planted.egg", "planted.chicken", "planted.nest"}


def of_two_modules(package: Path) -> dict[str, list[str]]:
    """The names of classes that several modules define, with these modules."""
    modules: dict[str, list[str]] = {}
    for file in sorted(package.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name in {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}:
            modules.setdefault(name, []).append(_dotted(file, package))
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_no_two_modules_have_a_class_of_one_name() -> None:
    assert not of_two_modules(PACKAGE)


def test_a_planted_class_of_a_name_that_is_taken_is_found(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "nest.py").write_text("class Egg:\n    pass\n\n\nclass Nest:\n    pass\n")
    (package / "pan.py").write_text("class Egg:\n    pass\n")
    assert of_two_modules(package) == {"Egg": ["planted.nest", "planted.pan"]}
