"""Messages on standard output and error: what others named is escaped here, and in the consoles of
rich, so that it cannot control a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress

from border_cli.words import masked, visible


def say(text: str) -> None:
    """Prints an answer of a command."""
    sys.stdout.write(visible(f"{text}\n"))
    sys.stdout.flush()


def complain(command: str, message: object) -> None:
    """Writes to standard error what a command refuses or reports, without passwords. Its exit
    status stays where nobody can read that."""
    with suppress(OSError):
        sys.stderr.write(visible(masked(f"{command}: {message}\n")))


def report(progress: str) -> None:
    """Shows on standard error how far a command is; on a terminal the next line replaces it."""
    with suppress(OSError):
        sys.stderr.write(progress + ("\r" if sys.stderr.isatty() else "\n"))
