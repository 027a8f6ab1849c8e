"""`-sc`: how a shell learns to ask when Tab is pressed, and what it is offered: flags, groups and
settings, values and paths."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.completion_plugin import CompletionPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.cli.flags import CFGS, FLAGS, INFOS, read_arguments
from border_cli.config.compose import Composer, composing
from border_cli.config.describe import choices_of
from border_cli.config.sources import Files, opened
from border_cli.core.config import AUTO
from border_cli.core.errors import BorderError, ConfigError
from border_cli.core.files import SETTINGS
from border_cli.core.words import unknown

HIDDEN_GROUPS = ("schema", "hydra")
# Settings of paths, with what they take besides
PATHS = {"resume": [AUTO], "init_from": [], "run_dir": []}
_ENTRY = re.compile(r"(?P<before>.*[\[,])?(?P<entry>[^\[,\]]*)")  # the last one of a list

# By zsh itself, where Hydra would run its script for bash: zsh must quote the brackets of a list.
_ZSH = {
    "install": """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_border_train() {
  local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
  local -a found=("${(@f)$(COMP_LINE=$line $words[1] -sc query=zsh 2>/dev/null)}")
  compadd -S '' -- ${found:#}
}
compdef _border_train border-train""",
    "uninstall": "compdef -d border-train; unfunction _border_train",
}


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
        found = _answer(before[1:], word)
    except BorderError:  # nothing follows what is refused: a Tab never prints a refusal
        found = []
    sys.stdout.write((" " if shell == "bash" else "\n").join(found) + "\n")


def set_up(shell: str, command: str) -> None:
    """Prints what installs or uninstalls the completion in a shell."""
    plugins = Plugins.instance().discover(CompletionPlugin)
    known = {each.provides(): each for each in plugins if issubclass(each, CompletionPlugin)}
    if shell not in known:
        raise ConfigError(f"-sc: {unknown('shell', shell, sorted(known))}")
    if shell == "zsh":
        sys.stdout.write(f"{_ZSH[command]}\n")
    else:
        with opened() as files:
            getattr(known[shell](files.loader), command)()


def _words(line: str) -> tuple[list[str], str]:
    """The words before the cursor, without their quotes, and the one under it."""
    for closing in ("", "'", '"'):
        try:  # the letter makes a word of what is empty yet
            *before, word = shlex.split(f"{line}x{closing}")
        except ValueError:  # a quote is open
            continue
        return before, word[:-1]
    return [], ""


def _answer(before: list[str], word: str) -> list[str]:
    flag = before[-1] if before else ""
    if flag in ("-cd", "--config-dir", "--from"):
        return _directories(word)
    if flag in ("-c", "--cfg"):
        return _starting(CFGS, word)
    if flag in ("-i", "--info") and "=" not in word:
        return _starting(INFOS, word)
    if word.startswith("-"):
        return _starting([flag.split()[0] for left, _ in FLAGS for flag in left.split(",")], word)
    named = flag in ("-cn", "--config-name")
    typed = read_arguments(before[:-1] if named else before)
    with composing(
        typed.overrides,
        config_dirs=typed.config_dirs,
        config_name=typed.config_name,
        origin=typed.origin,
        multirun=typed.multirun,
    ) as (composer, overrides):
        if named:
            return _starting(composer.primary_configs(), word)
        return matches(composer, overrides, word)


def matches(composer: Composer, overrides: Sequence[str], word: str) -> list[str]:
    """What the word under the cursor may become, after these overrides.

    Settings that cannot be composed yet offer nothing: a Tab never prints a refusal.
    """
    key, equals, value = word.partition("=")
    if key in PATHS and equals:
        return [f"{key}={each}" for each in [*_starting(PATHS[key], value), *_directories(value)]]
    try:
        composer.imported(overrides)
        with composer.opened() as files:
            if equals and files.group_exists(key.lstrip("+")):
                return _last_of(files.options(key.lstrip("+")), key, value)
        config = composer.composition(overrides, RunMode.MULTIRUN).config
        if equals:
            return _last_of(_of_setting(config, key.lstrip("+")), key, value)
        with composer.opened() as files:
            return sorted({*_groups(files, word), *_settings(config, word)})
    except (BorderError, HydraException, OmegaConfBaseException, YAMLError, ValueError):
        return []


def _starting(known: Sequence[str], typed: str) -> list[str]:
    """Those that begin with what was typed."""
    return [each for each in known if each.startswith(typed)]


def _directories(typed: str) -> list[str]:
    """Directories that continue a path; a run directory is complete, others end in a slash."""
    parent, slash, name = typed.rpartition("/")
    folder = Path(f"{parent}{slash}").expanduser()
    try:
        found = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []
    return [
        f"{parent}{slash}{each.name}" + ("" if (each / SETTINGS).is_file() else "/")
        for each in found
        if each.name.startswith(name) and (name or not each.name.startswith("."))
    ]


def _groups(files: Files, word: str) -> list[str]:
    """The groups that begin with a word; one that holds further groups ends in a slash."""
    parent, slash, _ = word.lstrip("+~").rpartition("/")
    prefix = word[: len(word) - len(word.lstrip("+~"))] + parent + slash
    found = []
    for each in files.options(parent, ObjectType.GROUP):
        if f"{prefix}{each}".startswith(word) and (parent or each not in HIDDEN_GROUPS):
            within = f"{parent}{slash}{each}"
            further = bool(files.options(within, ObjectType.GROUP))
            ends = {(True, False): "=", (False, True): "/"}
            ending = ends.get((bool(files.options(within)), further), "")
            found.append(prefix + each + ("" if word.startswith("~") else ending))
    return found


def _settings(config: DictConfig, word: str) -> list[str]:
    """The settings that begin with a word; one that holds further settings ends in a dot."""
    place, dot, begun = word.rpartition(".")
    node = OmegaConf.select(config, place) if place else config
    if not isinstance(node, DictConfig):
        return []
    return [
        f"{place}{dot}{key!s}" + ("." if OmegaConf.is_config(value) else "=")
        for key, value in node.items_ex(resolve=False)
        if str(key).startswith(begun)
    ]


def _last_of(known: Sequence[str], key: str, value: str) -> list[str]:
    """Values of a choice or a setting: of a list, or several for a sweep, the last entry."""
    found = _ENTRY.fullmatch(value)
    if found is None:
        return []
    before = found["before"] or ""
    taken = re.findall(r"[^\[,\]]+", before)
    free = [each for each in _starting(known, found["entry"]) if each not in taken]
    return [f"{key}={before}{each}" for each in free]


def _of_setting(config: DictConfig, path: str) -> list[str]:
    """Every value where they can be counted, else the one that is set."""
    place, _, name = path.rpartition(".")
    node = OmegaConf.select(config, place) if place else config
    if not OmegaConf.is_dict(node):
        return []
    kind = OmegaConf.get_type(node)
    known = _known_values(kind, name) if kind is not None and kind is not dict else []
    values: Any = OmegaConf.to_container(node, resolve=False)
    current = values.get(name)
    if known or current is None or isinstance(current, dict | list):
        return known
    return [str(current).lower() if isinstance(current, bool) else str(current)]


def _known_values(kind: type[Any], name: str) -> list[str]:
    hints = get_type_hints(kind)
    return (choices_of(kind, name) or _countable(hints[name])) if name in hints else []


def _countable(hint: Any) -> list[str]:
    """true and false, or the names of an enumeration, with null where it is allowed."""
    if get_origin(hint) in (Union, UnionType):
        entries = [_countable(each) for each in get_args(hint) if each is not type(None)]
        none = ["null"] if type(None) in get_args(hint) and all(entries) else []
        return [*(each for entry in entries for each in entry), *none]
    if hint is bool:
        return ["false", "true"]
    return [each.name for each in hint] if isinstance(hint, type) and issubclass(hint, Enum) else []
