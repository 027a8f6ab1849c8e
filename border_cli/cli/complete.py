"""`-sc`: what a shell asks for when Tab is pressed, and how it learns to ask."""

from __future__ import annotations

import os
import sys

from border_cli.cli.arguments import FLAGS, Arguments, read_arguments
from border_cli.cli.composing import composing
from border_cli.config.complete import matches, shell_plugin
from border_cli.core.errors import ConfigError


def complete(overrides: list[str]) -> None:
    """Answers `-sc install=SHELL`, `-sc uninstall=SHELL`, and the shell's `-sc query=SHELL`."""
    command, _, shell = overrides[0].partition("=") if len(overrides) == 1 else ("", "", "")
    if command in ("install", "uninstall"):
        getattr(shell_plugin(shell), command)()
        return
    if command != "query":
        raise ConfigError("-sc takes one of install=SHELL, uninstall=SHELL, query=SHELL")
    *before, word = os.environ.get("COMP_LINE", "").split(" ")
    if word.startswith("-"):
        flags = [flag.split()[0] for left, _ in FLAGS for flag in left.split(",")]
        found = [flag for flag in flags if flag.startswith(word)]
    else:
        typed = read_arguments([each for each in before[1:] if each])
        found = _offered(shell, typed, word)
    sys.stdout.write(("\n" if shell == "fish" else " ").join(found) + "\n")


def _offered(shell: str, typed: Arguments, word: str) -> list[str]:
    """Nothing after what would be refused: a Tab never prints a refusal."""
    try:
        with composing(typed, typed.overrides) as (composer, overrides):
            return matches(shell, composer, overrides, word)
    except ConfigError:
        return []
