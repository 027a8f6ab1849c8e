"""What lies in a run directory is not imported, and does not steer a terminal."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from border_cli.core.foreign import is_closed, nothing_imported_from
from border_cli.core.words import visible
from border_cli.process.start import pack


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module and a package, in the current directory, which is on the path."""
    folder = tmp_path / "theirs"
    (folder / "their_package").mkdir(parents=True)
    (folder / "their_module.py").write_text("")
    (folder / "their_package" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_nothing_comes_out_of_a_closed_folder_under_any_name(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(theirs)
    (tmp_path / "linked_module.py").symlink_to(theirs / "their_module.py")
    for entry in (str(theirs), str(tmp_path / "link"), "theirs", "/proc/self/cwd/theirs"):
        monkeypatch.setattr(sys, "path", [*sys.path, entry])
        with nothing_imported_from(theirs):
            assert entry not in sys.path
            for name in ("their_module", "their_package", "theirs.their_module", "linked_module"):
                with pytest.raises(ModuleNotFoundError, match="No module named"):
                    importlib.import_module(name)
            assert importlib.util.find_spec("their_module") is None
        assert sys.path[-1] == entry
    importlib.import_module("their_module")


def test_as_the_current_directory_it_is_closed_too(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(theirs)
    # An editable install adds a name that is no folder, relative to wherever Python is.
    absolute = [each for each in sys.path if Path(each).is_absolute()]
    monkeypatch.setattr(sys, "path", ["", ".", *absolute])
    path = list(sys.path)
    with nothing_imported_from(Path()):
        assert is_closed("")
        assert sys.path == path[2:]
        assert importlib.util.find_spec("their_module") is None
    assert sys.path == path


def test_a_module_behind_it_on_the_path_is_found(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "__init__.py").write_text("raise RuntimeError('their code ran')")
    (tmp_path / "mine" / "theirs").mkdir(parents=True)
    (tmp_path / "mine" / "theirs" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "mine")])
    with nothing_imported_from(theirs):
        found = importlib.import_module("theirs")
    assert found.__file__ == str(tmp_path / "mine" / "theirs" / "__init__.py")


def test_a_namespace_package_keeps_its_other_parts(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "theirs").mkdir(parents=True)
    (tmp_path / "mine" / "theirs" / "other_module.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "mine")])
    with nothing_imported_from(theirs):
        importlib.import_module("theirs.other_module")
        with pytest.raises(ModuleNotFoundError, match=r"theirs\.their_module"):
            importlib.import_module("theirs.their_module")


def test_plug_ins_that_lie_in_it_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "theirs-1.dist-info"  # a run directory may have any name
    installed.mkdir()
    (installed / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[border_cli.plugins]\nx = os:getpid\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert [each.name for each in entry_points(group="border_cli.plugins")] == ["x"]
    with nothing_imported_from(installed):
        assert list(entry_points(group="border_cli.plugins")) == []


def test_the_interpreter_is_as_before_afterwards(theirs: Path) -> None:
    finders, path = list(sys.meta_path), list(sys.path)
    with nothing_imported_from(theirs), nothing_imported_from(theirs):
        assert is_closed(str(theirs / "their_module.py"))
    assert (sys.meta_path, sys.path) == (finders, path)
    assert not is_closed(str(theirs))


def test_child_processes_follow_it(theirs: Path) -> None:
    with nothing_imported_from(theirs):
        recipe = pack("actor_manager=process", ["theirs.their_module"], None)
    child = (
        "import sys; from border_cli.process.start import unpack; unpack(sys.stdin.buffer.read())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", child],
        input=recipe,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert b"ModuleNotFoundError: No module named 'theirs" in ended.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 日本語 and 🙂\n\tanother line", None),
        ("\x1b[31mred\x07\x9b", r"\x1b[31mred\x07\x9b"),
        ("a\rb\x00\x7f", r"a\rb\x00\x7f"),
        ("txt\u202eexe.\u200b\u2066", r"txt\u202eexe.\u200b\u2066"),
        ("half \ud800, none \uffff", r"half \ud800, none \uffff"),
    ],
)
def test_what_would_steer_a_terminal_is_escaped_and_nothing_else(
    text: str, shown: str | None
) -> None:
    assert visible(text) == (text if shown is None else shown)
