"""`-sc`: how a shell learns to ask when Tab is pressed, and what it is offered: flags, groups with
their options, and settings. Where nothing is offered the shell completes names of files."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.types import RunMode
from omegaconf import OmegaConf

from border_cli.cli.flags import FLAGS, Arguments, read_arguments
from border_cli.config.compose import Composer, composing
from border_cli.errors import BorderError, ConfigError
from border_cli.words import unknown

HIDDEN_GROUPS = ("schema", "hydra")
# bash replaces what follows the last `=` alone, and zsh must quote the brackets of a list.
SCRIPTS = {
    "bash": """\
_border_train() {
  local IFS=$'\\n'
  COMPREPLY=($(COMP_LINE=${COMP_LINE:0:COMP_POINT} "$1" -sc query=bash 2>/dev/null))
  [[ ${COMP_WORDS[COMP_CWORD]} == = || $3 == = ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
}
complete -o nospace -o default -F _border_train border-train""",
    "zsh": """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_border_train() {
  local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
  local -a found=("${(@f)$(COMP_LINE=$line $words[1] -sc query=zsh 2>/dev/null)}")
  compadd -S '' -- ${found:#} || { compset -P '*='; _files }
}
compdef _border_train border-train""",
    "fish": """\
function _border_train
  env COMP_LINE=(commandline -cp) (commandline -cpo)[1] -sc query=fish 2>/dev/null
end
complete -c border-train -a '(_border_train)'""",
}


def complete(overrides: Sequence[str]) -> None:
    """Answers `-sc install=SHELL`, and the shell's `-sc query=SHELL`."""
    command, _, shell = " ".join(overrides).partition("=")
    if command == "install" and shell in SCRIPTS:
        sys.stdout.write(f"{SCRIPTS[shell]}\n")
    elif command == "install":
        raise ConfigError(f"-sc: {unknown('shell', shell, list(SCRIPTS))}")
    elif command == "query":
        before, word = _words(os.environ.get("COMP_LINE", ""))
        sys.stdout.write("\n".join(offered(before[1:], word)) + "\n")
    else:
        raise ConfigError("-sc takes one of install=SHELL, query=SHELL")


def _words(line: str) -> tuple[list[str], str]:
    """The words before the cursor, without their quotes, and the one under it."""
    for closing in ("", "'", '"'):
        try:  # the letter makes a word of what is empty yet
            *before, word = shlex.split(f"{line}x{closing}")
        except ValueError:  # a quote is open
            continue
        return before, word[:-1]
    return [], ""


def offered(before: Sequence[str], word: str) -> list[str]:
    """Continuations of the word under the cursor, each up to the next dot or equals sign; of a list
    or a sweep, those of its last entry. A Tab never prints a refusal."""
    if word.startswith("-"):
        names = [flag.split()[0] for left, _ in FLAGS for flag in left.split(",")]
        return [each for each in names if each.startswith(word)]
    key, equals, value = word.partition("=")
    entry = re.split(r"[\[,]", value)[-1]
    begun = f"{key}{equals}{entry}"
    try:
        names = list(_names(read_arguments(before)))
    except BorderError:
        return []
    steps = (
        re.match(r"[^.=]*[.=]?", each[len(begun) :]) for each in names if each.startswith(begun)
    )
    return sorted({f"{word}{step[0]}" for step in steps if step})


def _names(arguments: Arguments) -> Iterator[str]:
    """`agent=dqn` for each option of each group, and `agent.gamma=` for each setting."""
    with composing(
        arguments.overrides,
        config_dirs=arguments.config_dirs,
        config_name=arguments.config_name,
        origin=arguments.origin,
        multirun=arguments.multirun,
    ) as (composer, overrides):
        yield from _options(composer)
        config = composer.composition(overrides, RunMode.MULTIRUN).config
        settings: Any = OmegaConf.to_container(config, resolve=False)
        yield from _settings(settings)


def _options(composer: Composer) -> Iterator[str]:
    with composer.opened() as files:
        for group in files.options("", ObjectType.GROUP):
            if group not in HIDDEN_GROUPS:
                yield from (f"{group}={option}" for option in files.options(group))


def _settings(config: Mapping[Any, Any], place: str = "") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _settings(value, f"{place}{key}.")
        else:
            yield f"{place}{key}="
