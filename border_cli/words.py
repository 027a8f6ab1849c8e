"""How numbers, names, commands and settings appear in a sentence."""

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

# Categories of Unicode: control and format characters, and what is no character or half of one.
HIDDEN = ("Cc", "Cf", "Cs", "Cn")
LEAST_SECRET = 8  # characters; shorter values are words
_SECRETS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_PASSWORD = re.compile(r"//[^\s/:]*:[^\s/]*@")
_PLAIN = re.compile(r"[\w./@%+-]+( [\w./@%+-]+)*", re.ASCII)  # Hydra needs no quotes then


def counted(count: float, noun: str) -> str:
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


def listed(names: Sequence[object], most: int) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean gamma?`, or nothing if no known word is similar."""
    near = nearest(word, known)
    return f", did you mean {near}?" if near else ""


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that is most similar, whatever the case; None if none is similar enough."""
    names = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """`unknown agent 'dqm', did you mean dqn? (choose from awac, bc, …)`."""
    names = list(known)
    choices = f"choose from {', '.join(names)}" if names else "there are none"
    return f"unknown {kind} {word!r}{did_you_mean(str(word), names)} ({choices})"


def visible(text: str) -> str:
    r"""The text with everything escaped that would control a terminal or cannot be written to a
    file: `\x1b`, `\u202e`, `\ud800`.

    Line breaks and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def masked(text: str) -> str:
    """The text without passwords: those in URLs, and values of environment variables that are
    named like one."""
    text = _PASSWORD.sub("//***@", text)
    for name, value in os.environ.items():
        if name.endswith(_SECRETS) and len(value) >= LEAST_SECRET:
            text = text.replace(value, "***")
    return text


def shell_command(name: str) -> str:
    """How the command beside this one is typed: by its path where that is not on PATH."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.is_file() else shlex.quote(str(beside))


def shortest(path: Path) -> Path:
    """Relative to the current folder where it lies below it, and where that still exists."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, FileNotFoundError):
        return path


def setting(key: str, value: str) -> str:
    """`key=value`, quoted for Hydra where it would read something else in the value."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)  # a backslash counts before a quote only
    trailing = len(value) - len(value.rstrip("\\"))
    return f"{key}='{escaped}{chr(92) * trailing}'"
