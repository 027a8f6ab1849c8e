"""Standard streams: what simulators print."""

from __future__ import annotations

import subprocess
import sys

PRINTING = """
import ctypes
from border_cli.system.streams import prints_to_stderr
print("before")
with prints_to_stderr():
    print("Python")
    ctypes.CDLL(None).puts(b"C")  # stays in a buffer of C until it is full or the process ends
print("after")
"""


def test_prints_from_python_and_c_go_to_stderr_within_the_block() -> None:
    command = [sys.executable, "-c", PRINTING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert ended.stdout == "before\nafter\n"
    assert sorted(ended.stderr.split()) == ["C", "Python"]
