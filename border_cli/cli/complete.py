"""`-sc`: what a shell asks for when Tab is pressed, and how it learns to ask."""

from __future__ import annotations

import os
import shlex
import sys

from border_cli.cli.arguments import CFGS, FLAGS, INFOS, read_arguments
from border_cli.cli.composing import composing
from border_cli.config.complete import directories, matches, set_up, starting
from border_cli.core.errors import BorderError, ConfigError


def complete(overrides: list[str]) -> None:
    """Answers `-sc install=SHELL`, `-sc uninstall=SHELL`, and the shell's `-sc query=SHELL`."""
    command, _, shell = overrides[0].partition("=") if len(overrides) == 1 else ("", "", "")
    if command in ("install", "uninstall"):
        set_up(shell, command)
        return
    if command != "query":
        raise ConfigError("-sc takes one of install=SHELL, uninstall=SHELL, query=SHELL")
    before, word = _words(os.environ.get("COMP_LINE", ""))
    try:
        found = _offered(before[1:], word)
    except BorderError:  # nothing follows what is refused: a Tab never prints a refusal
        found = []
    sys.stdout.write((" " if shell == "bash" else "\n").join(found) + "\n")


def _words(line: str) -> tuple[list[str], str]:
    """The words before the cursor, without their quotes, and the one under it."""
    for closing in ("", "'", '"'):
        try:  # the letter makes a word of what is empty yet
            *before, word = shlex.split(f"{line}x{closing}")
        except ValueError:  # a quote is open
            continue
        return before, word[:-1]
    return [], ""


def _offered(before: list[str], word: str) -> list[str]:
    flag = before[-1] if before else ""
    if flag in ("-cd", "--config-dir"):
        return directories(word)
    if flag in ("-c", "--cfg"):
        return starting(CFGS, word)
    if flag in ("-i", "--info") and "=" not in word:
        return starting(INFOS, word)
    if word.startswith("-"):
        return starting([flag.split()[0] for left, _ in FLAGS for flag in left.split(",")], word)
    named = flag in ("-cn", "--config-name")
    typed = read_arguments(before[:-1] if named else before)
    with composing(typed, typed.overrides) as (composer, overrides):
        if named:
            return starting(composer.primary_configs(), word)
        return matches(composer, overrides, word)
