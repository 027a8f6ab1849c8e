"""Numbers, commands and settings as the messages write them."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

_PLAIN = re.compile(r"[\w./@%+-]+( [\w./@%+-]+)*", re.ASCII)  # Hydra needs no quotes then


def counted(count: float, noun: str) -> str:
    """`1 checkpoint`, `2,000 checkpoints`, `0.5 samples`."""
    figure = f"{count:,}" if isinstance(count, int) else f"{count:,g}"
    return f"{figure} {noun}" if count == 1 else f"{figure} {noun}s"


def shell_command(name: str) -> str:
    """How the command beside this one is typed: by its path where that is not on PATH."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.is_file() else shlex.quote(str(beside))


def shortest(path: Path) -> Path:
    """Relative to the current folder where it lies below it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def setting(key: str, value: str) -> str:
    """`key=value`, quoted for Hydra where it would read something else in the value."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)  # a backslash counts before a quote only
    trailing = len(value) - len(value.rstrip("\\"))
    return f"{key}='{escaped}{chr(92) * trailing}'"
