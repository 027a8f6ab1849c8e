"""The wheel and the source distribution are complete, and the wheel works from any directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from border_cli import __version__
from border_cli.cli.init import files_of
from border_cli.config.compose import compose
from border_cli.config.job import resolved_yaml

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.long


def quietly(*command: str | Path, cwd: Path, **environment: str) -> str:
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the source distribution, and the wheel from it, in a copy, since a build leaves files
    next to the sources."""
    copy = tmp_path_factory.mktemp("source") / "border_cli"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "build", "outputs", "cells")
    shutil.copytree(ROOT, copy, ignore=ignored)
    quietly(sys.executable, "-m", "build", "--no-isolation", cwd=copy)
    return copy / "dist"


def test_the_version_is_the_same_everywhere() -> None:
    for file, line in (
        ("pyproject.toml", f'version = "{__version__}"'),
        ("CITATION.cff", f"version: {__version__}"),
        ("CHANGELOG.md", f"## [{__version__}]"),
    ):
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        assert any(written.startswith(line) for written in lines), file


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


def test_the_source_distribution_holds_sources_tests_and_pages(distributions: Path) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert archive.name == f"border_cli-{__version__}.tar.gz"
    for pattern in (
        "border_cli/**/*.py",
        "conf/**/*.yaml",
        "tests/**/*.py",
        "docs/**/*.md",
        "*.md",
    ):
        expected = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
        assert expected
        assert expected <= inside
    assert {"LICENSE", "CITATION.cff", "benchmarks/__main__.py", "docs/terminal.svg"} <= inside
    tops = {name.split("/")[0] for name in inside}
    assert not tops & {"outputs", "build", ".git", ".ci", ".github"}


def test_every_configuration_file_and_module_is_inside(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    files = list((ROOT / "conf").rglob("*.yaml"))
    assert files
    assert {f"border_cli/conf/{file.relative_to(ROOT / 'conf').as_posix()}" for file in files} <= (
        inside
    )
    modules = (ROOT / "border_cli").rglob("*.py")
    assert {module.relative_to(ROOT).as_posix() for module in modules} <= inside
    template = "border_cli/template/"
    copied = {f"{template}{path}" for path in files_of(ROOT / template)}
    assert {name for name in inside if name.startswith(template)} == copied
    others = ("py.typed", "analysis/page.html", "env/atari_scores.csv")
    assert {f"border_cli/{other}" for other in others} <= inside
    assert "border_cli/conf/__init__.py" in inside
    assert "hydra_plugins/border_processes/__init__.py" in inside


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the wheel into a separate folder."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet")
    quietly(*pip, "--target", folder, wheel, cwd=folder)
    return folder


def test_an_installed_wheel_composes_from_elsewhere(target: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = (
        "import sys, border_cli; from border_cli.cli.train import main; main(sys.argv[1:]);"
        f"assert border_cli.__file__.startswith({str(target)!r}), border_cli.__file__"
    )
    command = (sys.executable, "-c", program, "env=cartpole", "--cfg", "job", "--resolve")
    shown = quietly(*command, cwd=elsewhere, PYTHONPATH=str(target))
    assert shown == resolved_yaml(compose("env=cartpole"))
    assert not list(elsewhere.iterdir())
    listing = (sys.executable, "-c", program, "--info", "plugins", "env=cartpole")
    listed = quietly(*listing, cwd=elsewhere, PYTHONPATH=str(target))
    assert "SweepLauncher" in listed
    assert f"border_cli-{__version__}.dist-info" in {entry.name for entry in target.iterdir()}


@pytest.mark.slow
def test_a_repository_that_an_installed_wheel_writes_passes_its_tests_and_trains(
    target: Path, tmp_path: Path
) -> None:
    program = "from border_cli.cli.init import main; main(['robots'])"
    output = quietly(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target))
    assert "border-train experiment=first" in output
    robots = tmp_path / "robots"
    tests = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    quietly(*tests, cwd=robots, PYTHONPATH=str(target))
    train = (sys.executable, "-m", "border_cli", "experiment=first", "quiet=true")
    trained = quietly(*train, cwd=robots, PYTHONPATH=str(target))
    assert trained.startswith("best score 1 at ")
    (run_dir,) = (robots / "outputs" / "mellow_dqn_catch").iterdir()
    scores = (run_dir / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert scores[0].startswith("opt_steps,env_steps,time_s,eval/return,")
    assert scores[-1].split(",")[3] == "1.000"
