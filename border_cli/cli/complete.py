"""Tab completion for bash, zsh and fish: `border-train -sc`.

The candidates are flags, groups with their options, settings, and run directories. If there are
none, the shell completes file names.
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

RUN_DIR_SETTINGS = ("resume", "init_from", "run_dir")  # settings whose values are run directories
OTHERS = ("border-eval", "border-export", "border-plot", "border-record", "border-runs")
TUNE = "border-tune"
ALL = " ".join(("border-train", TUNE, *OTHERS))
# The border-train in the directory of the completed command computes the candidates. bash replaces
# only the text after the last `=`; zsh must quote the brackets of a list.
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
    """Prints the script for `-sc install=SHELL` or the candidates for `-sc query=SHELL`."""
    command, _, shell = " ".join(overrides).partition("=")
    if command == "query":
        # imported late, like all imports below, to keep completion fast
        from border_cli.config.search_path import uses_plugins_here

        (name, *before), word = _split_line(os.environ.get("COMP_LINE", ""))
        program = Path(name).name
        token = uses_plugins_here.set(False)
        if program in OTHERS:
            candidates = complete_other(program, before, word)
        else:
            candidates = (complete_study if program == TUNE else complete_run)(before, word)
        uses_plugins_here.reset(token)
        sys.stdout.write("\n".join(candidates) + "\n")
    elif command != "install":
        raise ConfigError("-sc takes one of install=SHELL, query=SHELL")
    elif shell not in SCRIPTS:
        raise ConfigError(f"-sc: {unknown('shell', shell, SCRIPTS)}")
    else:
        sys.stdout.write(f"{SCRIPTS[shell]}\n")


def _split_line(line: str) -> tuple[list[str], str]:
    """Splits a line into the unquoted words before the cursor and the word under it."""
    for closing in ("", "'", '"'):
        try:  # the x keeps an empty last word
            *before, word = shlex.split(f"{line}x{closing}")
        except ValueError:  # unbalanced quote
            continue
        return before or [""], word[:-1]
    return [""], ""


def complete_run(before: Sequence[str], word: str) -> list[str]:
    """Returns the continuations of `word`, each up to the next dot, equals sign or slash. In a list
    or a sweep, completes the last entry. Errors yield no continuations."""
    if before[-1:] == ["--from"]:
        return complete_run_dirs(word)
    if word.startswith("-"):
        return _flags(FLAGS, word)
    key, equals, value = word.partition("=")
    if equals and key in RUN_DIR_SETTINGS:
        return [f"{key}={run_dir}" for run_dir in complete_run_dirs(value)]
    prefix = f"{key}{equals}{re.split(r'[,[]', value)[-1]}"
    try:
        names = list(_candidates(read_arguments(before), prefix))
    except BorderError:
        return []
    continuation = re.compile(f"{re.escape(prefix)}([^.=]*[.=]?)")
    return sorted({f"{word}{match[1]}" for match in map(continuation.match, names) if match})


def _flags(help_text: str, word: str) -> list[str]:
    """Returns the flags in a help text that start with `word`."""
    flags = re.findall(r"(?<![\w-])--?[a-z-]+", help_text)
    return sorted({flag for flag in flags if flag.startswith(word)})


def _candidates(arguments: Arguments, prefix: str) -> Iterator[str]:
    """Yields the names that may continue `prefix`: `agent=dqn` for an option, `agent=` and `agent.`
    for a group, `seed=` and `agent.gamma=` for settings."""
    from border_cli.cli.overview import MEANINGS, config_folders, options_in
    from border_cli.config.search_path import SEARCH
    from border_cli.registry import GROUPS
    from border_cli.settings.run import SECTIONS

    group, equals, _ = prefix.partition("=")
    if equals:
        options = options_in(config_folders(arguments.config_dirs), group)
        yield from (f"{group}={option}" for option in options)
    elif "." in prefix:
        yield from _setting_names(arguments)
    else:
        for folder in config_folders(arguments.config_dirs):
            groups = (entry.name for entry in folder.iterdir() if entry.is_dir())
            yield from (f"{child}=" for child in groups if child[0] not in "._" and child != SEARCH)
        yield from (f"{name}." for name in (*GROUPS, *SECTIONS))
        yield from (f"{name}=" for name in MEANINGS)


def _setting_names(arguments: Arguments) -> Iterator[str]:
    """Yields the settings of the chosen options, such as `agent.gamma=`."""
    from border_cli.config.hydra_source import find_plugins
    from border_cli.config.overrides import is_sweep
    from border_cli.settings.base import flat

    find_plugins()  # registers groups before the current directory is searched
    with arguments.composing() as (composer, overrides):
        config = composer.job([override for override in overrides if not is_sweep(override)]).config
    yield from (f"{name}=" for name in flat(config) if not name.endswith(".option"))


def complete_study(before: Sequence[str], word: str) -> list[str]:
    """Returns the matching keys of border-tune and the continuations for a run."""
    from border_cli.tune.config import TuneConfig

    keys = [f"{key.name}=" for key in fields(TuneConfig)]
    run_words = [typed for typed in before if not typed.startswith(tuple(keys))]
    return [*(key for key in keys if key.startswith(word)), *complete_run(run_words, word)]


def complete_other(command: str, before: Sequence[str], word: str) -> list[str]:
    """Returns the matching keys in the --help of another command, and run directories."""
    help_text = import_module(f"border_cli.cli.{command.removeprefix('border-')}").HELP
    if word.startswith("-"):
        return _flags(help_text, word)
    if before and before[-1].startswith("-"):  # its value may be a file
        return []
    keys = re.findall(r"^  ([a-z]+(?:=|(?=  )))", help_text, re.MULTILINE)
    return [*(key for key in keys if key.startswith(word)), *complete_run_dirs(word)]


def complete_run_dirs(word: str) -> list[str]:
    """Returns the run directories that start with `word`, each up to the next slash. If `word` has
    no slash, searches only outputs, runs and sweeps in the current directory."""
    from border_cli.analysis.load import runs_below

    head, slash, name = word.rpartition("/")
    candidates = []
    for folder in Path(f"{head}{slash}").expanduser().glob("*"):
        is_run = any((folder / file).is_file() for file in (SETTINGS, SWEEP_JSON))
        if folder.name.startswith(name) and (slash or is_run or folder.name == "outputs"):
            first = next(runs_below(folder), None)
            end = "" if first == str(folder) else "/"
            candidates += [f"{head}{slash}{folder.name}{end}"] if first else []
    return sorted(candidates)
