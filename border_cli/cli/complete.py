"""`-sc`: how a shell learns to ask when Tab is pressed, and what it is offered: flags, groups with
their options, settings, and run directories. Where nothing is offered the shell completes names of
files.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path

from border_cli.cli.flags import FLAGS, Arguments, read_arguments
from border_cli.errors import BorderError, ConfigError
from border_cli.system.files import SETTINGS, SWEEP_JSON
from border_cli.words import unknown

OF_RUNS = ("resume", "init_from", "run_dir")  # settings whose values are directories of runs
OTHERS = ("border-eval", "border-export", "border-plot", "border-record", "border-runs")
TUNE = "border-tune"
ALL = " ".join(("border-train", TUNE, *OTHERS))
# Whichever command is completed, the border-train beside it answers. bash replaces what follows the
# last `=` alone, and zsh must quote the brackets of a list.
SCRIPTS = {
    "bash": f"""\
_border_train() {{
  local IFS=$'\\n'
  local line=${{COMP_LINE:0:COMP_POINT}} train=${{1%border-*}}border-train
  COMPREPLY=($(COMP_LINE=$line "$train" -sc query=bash 2>/dev/null))
  [[ ${{COMP_WORDS[COMP_CWORD]}} == = || $3 == = ]] && COMPREPLY=("${{COMPREPLY[@]#*=}}")
}}
complete -o nospace -o default -F _border_train {ALL}""",
    "zsh": f"""\
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
_border_train() {{
  local line="${{(j: :)words[1,CURRENT-1]}} $PREFIX" train=${{words[1]%border-*}}border-train
  local -a found=("${{(@f)$(COMP_LINE=$line $train -sc query=zsh 2>/dev/null)}}")
  compadd -S '' -- ${{found:#}} || {{ compset -P '*='; _files }}
}}
compdef _border_train {ALL}""",
    "fish": f"""\
function _border_train
  set -l train (string replace -r 'border-[a-z]+$' border-train (commandline -cpo)[1])
  env COMP_LINE=(commandline -cp) $train -sc query=fish 2>/dev/null
end
for each in {ALL}
  complete -c $each -a '(_border_train)'
end""",
}


def complete(overrides: Sequence[str]) -> None:
    """Answers `-sc install=SHELL`, and the shell's `-sc query=SHELL`."""
    command, _, shell = " ".join(overrides).partition("=")
    if command == "query":
        # imported late, as all below: every Tab waits for the imports of this file
        from border_cli.config.search_path import uses_plugins_here

        (name, *before), word = _words(os.environ.get("COMP_LINE", ""))
        other = Path(name).name
        unused = uses_plugins_here.set(False)
        if other in OTHERS:
            found = of_another(other, before, word)
        else:
            found = (of_study if other == TUNE else offered)(before, word)
        uses_plugins_here.reset(unused)
        sys.stdout.write("\n".join(found) + "\n")
    elif command != "install":
        raise ConfigError("-sc takes one of install=SHELL, query=SHELL")
    elif shell not in SCRIPTS:
        raise ConfigError(f"-sc: {unknown('shell', shell, SCRIPTS)}")
    else:
        sys.stdout.write(f"{SCRIPTS[shell]}\n")


def _words(line: str) -> tuple[list[str], str]:
    """The words before the cursor, without their quotes, and the one under it."""
    for closing in ("", "'", '"'):
        try:  # the letter makes a word of what is empty yet
            *before, word = shlex.split(f"{line}x{closing}")
        except ValueError:  # a quote is open
            continue
        return before or [""], word[:-1]
    return [""], ""


def offered(before: Sequence[str], word: str) -> list[str]:
    """Continuations of the word under the cursor, each up to the next dot or equals sign, or slash;
    of a list or a sweep, those of its last entry. A Tab never prints a refusal."""
    if before[-1:] == ["--from"]:
        return runs_from(word)
    if word.startswith("-"):
        return _flags(FLAGS, word)
    key, equals, value = word.partition("=")
    if equals and key in OF_RUNS:
        return [f"{key}={each}" for each in runs_from(value)]
    begun = f"{key}{equals}{re.split(r'[,[]', value)[-1]}"
    try:
        names = list(_names(read_arguments(before), begun))
    except BorderError:
        return []
    step = re.compile(f"{re.escape(begun)}([^.=]*[.=]?)")
    return sorted({f"{word}{found[1]}" for found in map(step.match, names) if found})


def _flags(text: str, word: str) -> list[str]:
    """The flags in a text of --help that begin like this."""
    flags = re.findall(r"(?<![\w-])--?[a-z-]+", text)
    return sorted({each for each in flags if each.startswith(word)})


def _names(arguments: Arguments, begun: str) -> Iterator[str]:
    """`agent=dqn` for each option of a group, `agent=` and `agent.` for each group, `seed=` and
    `agent.gamma=` for each setting, as far as they may continue what is typed."""
    from border_cli.cli.overview import MEANINGS, config_folders, options_in
    from border_cli.config.search_path import SEARCH
    from border_cli.registry import GROUPS
    from border_cli.settings.run import SECTIONS

    group, equals, _ = begun.partition("=")
    if equals:
        options = options_in(config_folders(arguments.config_dirs), group)
        yield from (f"{group}={option}" for option in options)
    elif "." in begun:
        yield from _of_choices(arguments)
    else:
        for folder in config_folders(arguments.config_dirs):
            groups = (each.name for each in folder.iterdir() if each.is_dir())
            yield from (f"{each}=" for each in groups if each[0] not in "._" and each != SEARCH)
        yield from (f"{name}." for name in (*GROUPS, *SECTIONS))
        yield from (f"{name}=" for name in MEANINGS)


def _of_choices(arguments: Arguments) -> Iterator[str]:
    """The settings of what is chosen."""
    from border_cli.config.hydra_source import find_plugins
    from border_cli.config.overrides import is_sweep
    from border_cli.settings.base import flat

    find_plugins()  # before the current directory is searched
    with arguments.composing() as (composer, overrides):
        config = composer.job([each for each in overrides if not is_sweep(each)]).config
    yield from (f"{name}=" for name in flat(config) if not name.endswith(".option"))


def of_study(before: Sequence[str], word: str) -> list[str]:
    """Offers the keys of border-tune, and what is offered for runs."""
    from border_cli.tune.config import TuneConfig

    keys = [f"{key.name}=" for key in fields(TuneConfig)]
    of_runs = [typed for typed in before if not typed.startswith(tuple(keys))]
    return [*(key for key in keys if key.startswith(word)), *offered(of_runs, word)]


def of_another(command: str, before: Sequence[str], word: str) -> list[str]:
    """Of a command but border-train: what begins a line of its --help, and run directories."""
    text = import_module(f"border_cli.cli.{command.removeprefix('border-')}").HELP
    if word.startswith("-"):
        return _flags(text, word)
    if before and before[-1].startswith("-"):  # which may take a file
        return []
    names = re.findall(r"^  ([a-z]+(?:=|(?=  )))", text, re.MULTILINE)
    return [*(each for each in names if each.startswith(word)), *runs_from(word)]


def runs_from(word: str) -> list[str]:
    """Run directories that begin like this, each up to the next slash. Where no folder is typed
    yet, only outputs, runs and sweeps of the current one are searched."""
    from border_cli.analysis.load import runs_below

    head, slash, name = word.rpartition("/")
    found = []
    for folder in Path(f"{head}{slash}").expanduser().glob("*"):
        ours = any((folder / each).is_file() for each in (SETTINGS, SWEEP_JSON))
        if folder.name.startswith(name) and (slash or ours or folder.name == "outputs"):
            first = next(runs_below(folder), None)
            end = "" if first == str(folder) else "/"
            found += [f"{head}{slash}{folder.name}{end}"] if first else []
    return sorted(found)
