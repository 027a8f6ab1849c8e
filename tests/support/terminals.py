"""Runs a command on a pseudo-terminal and reads its screen."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Self

DEADLINE_S = 300.0
# Python code that makes stdin the controlling terminal and then executes the command. `preexec_fn`
# is no alternative: Python 3.12 warns about it in a process with threads.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|[\r\n]|[^\x1b\r\n]")


def screen(written: str, width: int) -> list[str]:
    """Renders output to lines of a screen of unlimited height; supports only what rich writes."""
    rows: list[list[str]] = [[]]
    line, column = 0, 0
    for token in _TOKEN.finditer(written):
        text, number, command = token[0], token[1], token[2]
        if command == "A":
            line = max(0, line - int(number or 1))
        elif command == "K":
            rows[line] = [] if number == "2" else rows[line][:column]
        elif text == "\r":
            column = 0
        elif text == "\n":
            line += 1
        elif not text.startswith("\x1b"):
            if column == width:  # a full line wraps with the next character
                line, column = line + 1, 0
            while len(rows) <= line:
                rows.append([])
            rows[line] += [" "] * (column + 1 - len(rows[line]))
            rows[line][column] = text
            column += 1
        while len(rows) <= line:
            rows.append([])
    return ["".join(row).rstrip() for row in rows]


class Screen(io.StringIO):
    """A stream that claims to be a terminal and stores all output."""

    def isatty(self) -> bool:
        return True


class TerminalCommand:
    """`border-train` in a child process on a pseudo-terminal, killed at the end of the block."""

    def __init__(self, folder: Path, *argv: str, columns: int = 80, lines: int = 40) -> None:
        self._columns = columns
        self._ours, theirs = pty.openpty()
        # If the reader is slow, the kernel may echo ^C in the middle of a frame.
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        tests = Path(__file__).parents[1]
        path = os.pathsep.join([str(tests.parent), str(tests / "user_modules")])
        variables = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", TAKE_TERMINAL, sys.executable, "-m", "border_cli", *argv],
            cwd=folder,
            env=variables | {"TERM": "xterm-256color", "PYTHONPATH": path},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(DEADLINE_S)
        os.close(self._ours)

    def screen(self) -> list[str]:
        """Returns the current lines of the screen."""
        return screen(self._written.decode(errors="replace"), self._columns)

    def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Reads until the screen meets the condition; returns its lines."""
        deadline_s = monotonic() + DEADLINE_S
        while not condition(self.screen()):
            assert monotonic() < deadline_s, "\n".join(self.screen())
            assert self._read(), "\n".join(self.screen())
        return self.screen()

    def press_ctrl_c(self) -> None:
        """Types Ctrl-C; the terminal sends the signal."""
        os.write(self._ours, b"\x03")

    def ended(self) -> int:
        """Reads all remaining output; returns the exit status."""
        while self._read():
            pass
        return self._process.wait(DEADLINE_S)

    def _read(self) -> bool:
        """Reads more output; returns False if the command has closed its terminal."""
        ready, _, _ = select.select([self._ours], [], [], DEADLINE_S)
        assert ready, "no output before the deadline"
        try:
            read = os.read(self._ours, 65536)
        except OSError:  # on Linux: the other side is closed
            return False
        self._written += read
        return bool(read)
