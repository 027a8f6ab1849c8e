"""Formats numbers, names, commands and settings for messages."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

# Unicode categories: control, format, surrogate and unassigned characters
HIDDEN = ("Cc", "Cf", "Cs", "Cn")
LEAST_SECRET = 8  # minimum length of a secret; shorter values could be ordinary words
_SECRETS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_PASSWORD = re.compile(r"//[^\s/:]*:[^\s/]*@")
_PLAIN = re.compile(r"[\w./@%+-]+( [\w./@%+-]+)*", re.ASCII)  # needs no quotes in Hydra


def pluralize(count: float, noun: str) -> str:
    """`1 checkpoint`, `2,000 checkpoints`, `0.5 samples`."""
    figure = f"{count:,}" if isinstance(count, int) else f"{count:,g}"
    return f"{figure} {noun}" if count == 1 else f"{figure} {noun}s"


def size(nbytes: float) -> str:
    """28224 -> `28.2 kB`, 412_000_000 -> `393 MiB`, 9_000_000_000 -> `8.38 GiB`."""
    if nbytes < 1e6:
        return f"{nbytes:.0f} B" if nbytes < 1000 else f"{nbytes / 1000:.3g} kB"
    if nbytes < 2**30:
        return f"{nbytes / 2**20:,.0f} MiB"
    gib = nbytes / 2**30
    return f"{gib:,.1f} GiB" if gib >= 10 else f"{gib:.2f} GiB"


def join_names(names: Sequence[object], most: int) -> str:
    """`a, b, c and 4 more`."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + rest


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean gamma?`, or an empty string if no known word is similar."""
    suggestion = nearest(word, known)
    return f", did you mean {suggestion}?" if suggestion else ""


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the most similar known word, ignoring case; None if none is similar enough."""
    names = {name.lower(): name for name in known}
    matches = get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    return names[matches[0]] if matches else None


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """`unknown agent 'dqm', did you mean dqn? (choose from awac, bc, …)`."""
    names = list(known)
    choices = f"choose from {', '.join(names)}" if names else "there are none"
    return f"unknown {kind} {word!r}{did_you_mean(str(word), names)} ({choices})"


def escape_controls(text: str) -> str:
    r"""Escapes characters that could control a terminal or cannot be written to a file: `\x1b`,
    `\u202e`, `\ud800`.

    Line breaks and tabs are retained.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def mask_secrets(text: str) -> str:
    """Masks passwords: those in URLs, and the values of environment variables such as
    `WANDB_API_KEY`."""
    text = _PASSWORD.sub("//***@", text)
    for name, value in os.environ.items():
        if name.endswith(_SECRETS) and len(value) >= LEAST_SECRET:
            text = text.replace(value, "***")
    return text


def shell_command(name: str) -> str:
    """Returns how to call another command of border_cli: by name, or by path if it is not on
    PATH."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.is_file() else shlex.quote(str(beside))


def shortest(path: Path) -> Path:
    """Returns a path relative to the current directory if it lies below it, else unchanged."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, FileNotFoundError):
        return path


def format_override(key: str, value: str) -> str:
    """`key=value`, with quotes if Hydra would interpret the value differently."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)  # backslashes escape only before a quote
    trailing = len(value) - len(value.rstrip("\\"))
    return f"{key}='{escaped}{chr(92) * trailing}'"
