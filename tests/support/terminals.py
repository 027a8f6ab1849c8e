"""A command on a terminal of its own, and what is on its screen."""

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

DEADLINE_S = 60.0
# Python that makes its standard input the controlling terminal, then becomes the command. Not
# `preexec_fn`: Python 3.12 warns of it in a process with threads.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|[\r\n]|[^\x1b\r\n]")


def screen(written: str, width: int) -> list[str]:
    """The lines on an endless screen of this width; knows what rich writes, and no more."""
    rows: list[list[str]] = [[]]
    at, column = 0, 0
    for token in _TOKEN.finditer(written):
        text, number, command = token[0], token[1], token[2]
        if command == "A":
            at = max(0, at - int(number or 1))
        elif command == "K":
            rows[at] = [] if number == "2" else rows[at][:column]
        elif text == "\r":
            column = 0
        elif text == "\n":
            at += 1
        elif not text.startswith("\x1b"):
            if column == width:  # a full line wraps with the next character
                at, column = at + 1, 0
            while len(rows) <= at:
                rows.append([])
            rows[at] += [" "] * (column + 1 - len(rows[at]))
            rows[at][column] = text
            column += 1
        while len(rows) <= at:
            rows.append([])
    return ["".join(row).rstrip() for row in rows]


class Screen(io.StringIO):
    """A terminal that keeps all that is written to it."""

    def isatty(self) -> bool:
        return True


class TerminalCommand:
    """`border-train` with these settings in a process of its own, on a terminal."""

    def __init__(self, folder: Path, *argv: str, columns: int = 80, lines: int = 40) -> None:
        self._columns = columns
        self._ours, theirs = pty.openpty()
        # The kernel may echo ^C in the middle of a frame, if what reads the screen is slow.
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        tests = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
        variables = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", TAKE_TERMINAL, sys.executable, "-m", "border_cli", *argv],
            cwd=folder,
            env=variables | {"TERM": "xterm-256color", "PYTHONPATH": tests},
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
        """What is on it now."""
        return screen(self._written.decode(errors="replace"), self._columns)

    def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Reads until the screen meets the condition; returns the screen."""
        deadline_s = monotonic() + DEADLINE_S
        while not condition(self.screen()):
            assert monotonic() < deadline_s, "\n".join(self.screen())
            assert self._read(), "\n".join(self.screen())
        return self.screen()

    def press_ctrl_c(self) -> None:
        """As the keyboard does: the terminal sends the signal."""
        os.write(self._ours, b"\x03")

    def ended(self) -> int:
        """Its exit status, once all that it wrote is read."""
        while self._read():
            pass
        return self._process.wait(DEADLINE_S)

    def _read(self) -> bool:
        """Whether more came; not once the command has closed its terminal."""
        ready, _, _ = select.select([self._ours], [], [], DEADLINE_S)
        assert ready, "nothing came"
        try:
            read = os.read(self._ours, 65536)
        except OSError:  # how Linux tells that the other side is closed
            return False
        self._written += read
        return bool(read)
