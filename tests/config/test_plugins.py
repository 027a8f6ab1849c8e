"""A plug-in of Hydra's that fails to import does not fail a command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PRINT = "import sys; from border_cli.cli.train import main; main(sys.argv[1:])"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('mutable default')", "ValueError: mutable default"),
        ("import not_installed", "ModuleNotFoundError: No module named 'not_installed'"),
    ],
)
def test_a_plug_in_that_fails_to_import_is_named_in_one_line_and_left_out(
    text: str, reason: str, folder: Path, write: Callable[[str, str], Path]
) -> None:
    write("hydra_plugins/their_sweeper/__init__.py", "")
    write("hydra_plugins/their_sweeper/config.py", text)
    done = subprocess.run(
        [sys.executable, "-c", PRINT, "agent=random", "--cfg", "job"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "option: random" in done.stdout
    said = "Hydra's plug-in their_sweeper cannot be imported and is left out: "
    assert done.stderr == f"{said}{reason}\n"
