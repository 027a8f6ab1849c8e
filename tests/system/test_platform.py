"""On Windows, whose Python has no fcntl, commands and the Python API say where border_cli runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

MESSAGE = "border_cli runs on Linux and macOS. On Windows use it inside WSL"
ON_WINDOWS = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None\n"


@pytest.mark.parametrize(
    "code", ["import border_cli.cli.train", "import border_cli.cli.eval", "border_cli.train"]
)
def test_windows_is_refused_with_one_sentence(code: str) -> None:
    command = [sys.executable, "-c", f"{ON_WINDOWS}import border_cli\n{code}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].removeprefix("ImportError: ") == MESSAGE
