"""Protection from foreign run directories: no imports from them, no control characters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from border_cli.system.files import SETTINGS
from border_cli.system.foreign import MARKS, POLICY, find_mark, keep_written_folders_off_path
from border_cli.words import escape_controls


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A run directory of somebody else."""
    folder = tmp_path / "theirs"
    (folder / SETTINGS).parent.mkdir(parents=True)
    (folder / SETTINGS).touch()
    return folder


def test_a_path_belongs_to_the_run_it_is_or_lies_in(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(theirs)
    paths = (theirs, theirs / "checkpoints" / "best", theirs / "1/2/3", tmp_path / "link")
    assert [find_mark(path) for path in paths] == [theirs / SETTINGS] * 4
    assert find_mark(theirs / "1/2/3/4") is None
    assert find_mark(tmp_path) is None


@pytest.mark.parametrize("mark", MARKS)
def test_a_path_belongs_to_the_sweep_study_or_export_it_lies_in(mark: str, tmp_path: Path) -> None:
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_bytes(POLICY)
    assert find_mark(tmp_path / "job" / "checkpoints") == tmp_path / mark


def test_the_policy_of_another_program_is_no_mark(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text('{"Version": "2012-10-17"}')
    assert find_mark(tmp_path) is None
    (tmp_path / "sweep.json").touch()
    assert find_mark(tmp_path) == tmp_path / "sweep.json"


@pytest.mark.parametrize("inner", [".", "checkpoints"])
def test_neither_a_run_nor_the_current_directory_in_one_is_on_the_path(
    inner: str, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "checkpoints").mkdir()
    (tmp_path / "link").symlink_to(theirs)
    others = [str(tmp_path), "/usr/lib", str(theirs / ".venv" / "site-packages")]
    runs = [str(theirs), str(tmp_path / "link")]
    monkeypatch.setattr(sys, "path", ["", *runs, *others])
    assert keep_written_folders_off_path() is None
    assert sys.path == ["", *others]  # the current directory is not a run
    monkeypatch.chdir(theirs / inner)
    monkeypatch.setattr(sys, "path", ["", ".", str(theirs / inner), *others])
    assert keep_written_folders_off_path() == theirs / SETTINGS
    assert sys.path == others


def test_what_lies_below_such_a_directory_is_not_on_the_path_either(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "src").mkdir()
    monkeypatch.chdir(theirs)
    monkeypatch.setattr(sys, "path", ["src", str(theirs / "src"), "/usr/lib"])
    keep_written_folders_off_path()
    assert sys.path == ["/usr/lib"]


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
    assert escape_controls(text) == (text if shown is None else shown)
