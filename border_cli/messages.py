"""Messages on stdout and stderr. Control characters are escaped here, as in the rich consoles, so
that text from users or files cannot control the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress

from border_cli.words import escape_controls, mask_secrets


def say(text: str) -> None:
    """Prints text to stdout."""
    sys.stdout.write(escape_controls(f"{text}\n"))
    sys.stdout.flush()


def complain(command: str, message: object) -> None:
    """Writes an error or warning of a command to stderr, without passwords. A closed stderr is
    ignored, so that the exit status is preserved."""
    with suppress(OSError):
        sys.stderr.write(escape_controls(mask_secrets(f"{command}: {message}\n")))


def report(progress: str) -> None:
    """Shows the progress of a command on stderr; on a terminal the next line overwrites it."""
    with suppress(OSError):
        sys.stderr.write(progress + ("\r" if sys.stderr.isatty() else "\n"))
