"""`border-init` creates a project and never overwrites a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.cli.init import main

Capture = pytest.CaptureFixture[str]


def files(folder: Path) -> set[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if path.parts[0] not in (".git", ".venv")}


@pytest.fixture
def refused(folder: Path, capsys: Capture) -> Callable[..., str]:
    """Runs a command that must exit with status 2 and change nothing; returns its error message."""

    def _refused(*argv: str) -> str:
        before = sorted(folder.rglob("*"))
        with pytest.raises(SystemExit) as left:
            main(argv)
        said = capsys.readouterr()
        assert left.value.code == 2
        assert said.err.startswith("border-init: ")
        assert not said.out
        assert sorted(folder.rglob("*")) == before
        return said.err

    return _refused


def test_every_file_of_the_template_is_written_under_the_name_of_the_directory(
    folder: Path, capsys: Capture
) -> None:
    main(["deep/sorting_robots"])
    project = folder / "deep" / "sorting_robots"
    expected = {
        "README.md", "pyproject.toml", ".gitignore", "tests/test_first.py",
        "conf/agent/mellow_dqn.yaml", "conf/env/catch.yaml", "conf/experiment/first.yaml",
        "conf/recorder/scores.yaml",
        *(f"sorting_robots/{module}.py" for module in ("__init__", "config", "board", "catch")),
        *(f"sorting_robots/{module}.py" for module in ("mellow_dqn", "score_file")),
    }  # fmt: skip
    assert files(project) == expected
    for name in expected:
        assert "my_experiments" not in (project / name).read_text(encoding="utf-8")
    said = capsys.readouterr().out
    assert said.startswith(f"deep/sorting_robots: {len(expected)} files written")
    assert "  cd deep/sorting_robots\n" in said


def test_the_package_may_be_called_otherwise_than_the_directory(
    folder: Path, capsys: Capture
) -> None:
    main(["my-lab"])
    assert (folder / "my-lab" / "my_lab" / "catch.py").is_file()
    main(["name=robots", "My Lab"])
    assert (folder / "My Lab" / "robots" / "catch.py").is_file()
    assert "  cd 'My Lab'\n" in capsys.readouterr().out


def test_hidden_files_of_other_tools_may_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    project = folder / "robots"
    (project / ".git").mkdir(parents=True)
    (project / ".venv").mkdir()
    monkeypatch.chdir(project)
    main(["."])
    assert (project / "robots" / "__init__.py").is_file()
    assert "  cd " not in capsys.readouterr().out


def test_a_directory_with_files_is_refused(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "robots" / ".gitignore").mkdir(parents=True)
    assert "robots is not empty (.gitignore)" in refused("robots")
    (folder / "file").touch()
    assert "file: Not a directory" in refused("file")


@pytest.mark.parametrize("name", ["2-robots", "Robots", "class", "json", "tests"])
def test_a_name_that_cannot_be_a_package_is_refused_with_another(
    name: str, refused: Callable[..., str]
) -> None:
    said = refused(name)
    package = name.replace("-", "_")
    assert f"{package!r} cannot be the name of a new package" in said
    assert f"Example: border-init {name} name=my_experiments" in said
    assert f"{name!r} cannot be the name" in refused("robots", f"name={name}")


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["a", "b"], "give one directory, got 2: a b"),
        (["name=a"], "give one directory, got 0"),
        (["robots", "nam=a"], "unknown option 'nam', did you mean name?"),
        (["robots", "--hlep"], "unknown flag '--hlep', did you mean --help?"),
    ],
)
def test_other_arguments_are_refused(
    argv: list[str], reason: str, refused: Callable[..., str]
) -> None:
    assert reason in refused(*argv)


def test_help_is_printed_on_request_and_without_arguments(capsys: Capture) -> None:
    for argv, status in ((["--help"], 0), ([], 2)):
        with pytest.raises(SystemExit) as left:
            main(argv)
        assert left.value.code == status
        assert "border-init DIR [name=PACKAGE]" in capsys.readouterr().out
