"""Commands without access to a file or directory fail with its path and the reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import QUICK, UNPRIVILEGED, Command

TRAIN = ("env=cartpole", *QUICK)
EVAL, RECORD = "border_cli.cli.eval", "border_cli.cli.record"


@pytest.fixture(scope="module", autouse=True)
def modes_count(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips these tests if root cannot drop its privilege to ignore file modes."""
    closed = tmp_path_factory.mktemp("closed")
    closed.chmod(0o555)
    check = f"import os, sys; sys.exit(os.access({str(closed)!r}, os.W_OK))"
    drop_privileges = f"import os, sys; {UNPRIVILEGED}; os.execv(sys.executable, sys.argv[1:])"
    argv = [sys.executable, "-ISc", drop_privileges, sys.executable, "-ISc", check]
    if subprocess.run(argv, check=False).returncode:
        pytest.skip("root may write everywhere here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that contains a finished run."""
    folder = tmp_path_factory.mktemp("whole")
    with Command(folder, *TRAIN, "run_dir=run", "actor_manager=serial") as run:
        status, said = run.ended()
    assert status == 0, said
    return folder


@pytest.fixture
def theirs(whole: Path, tmp_path: Path) -> Iterator[Path]:
    """A directory with a copy of the run; its permissions are restored after the test."""
    shutil.copytree(whole / "run", tmp_path / "run", symlinks=True)
    yield tmp_path
    for path in (tmp_path, *tmp_path.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def denied(folder: Path, *argv: str, module: str = "border_cli") -> str:
    """Runs a command that must be refused without writing a file; returns its output."""
    before = sorted(folder.rglob("*"))
    with Command(folder, *argv, before=UNPRIVILEGED, module=module) as run:
        status, said = run.ended()
    assert status == 2, said
    assert "Traceback" not in said
    assert sorted(folder.rglob("*")) == before
    return said


def test_where_nothing_can_be_written_no_run_begins(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    said = denied(tmp_path, *TRAIN)
    tmp_path.chmod(0o755)
    assert said.startswith("border-train: run_dir=")
    assert f": cannot create files in {tmp_path} (Permission denied)" in said


@pytest.mark.parametrize("run_dir", ["file/x", "loop", "lost/x"])
def test_a_run_directory_that_cannot_be_is_refused(
    folder: Path, refusal: Callable[..., str], run_dir: str
) -> None:
    (folder / "file").touch()
    (folder / "loop").symlink_to("loop")
    (folder / "lost").symlink_to("nowhere")
    said = refusal(*TRAIN, f"run_dir={run_dir}")
    assert f"run_dir={run_dir}: cannot create files in {folder}" in said


def test_a_run_that_cannot_be_read_is_refused_by_every_command(theirs: Path) -> None:
    (theirs / "run" / ".hydra").chmod(0o000)
    for module, argv in (
        (EVAL, ("run",)),
        (RECORD, ("run", "dataset=my/data-v0")),
        ("border_cli", ("resume=run", "trainer.max_opt_steps=4")),
    ):
        assert "Permission denied" in denied(theirs, *argv, module=module)


def test_a_deleted_current_directory_is_reported(tmp_path: Path) -> None:
    leave = "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"
    with Command(tmp_path, *TRAIN, before=leave) as run:
        status, said = run.ended()
    assert (status, said) == (2, "border-train: the current directory: No such file or directory\n")
