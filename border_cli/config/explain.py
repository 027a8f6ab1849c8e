"""Refusals of settings in words: with file and key, and with what is allowed or known there.

No command whose settings are accepted loads this file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config.describe import expected
from border_cli.config.overrides import OPTIONAL_GROUPS
from border_cli.config.schemas import takes_several
from border_cli.config.sources import ConfigFile, Files
from border_cli.errors import ConfigError, MissingPackage
from border_cli.registry import GROUPS
from border_cli.settings.base import flat, unknown_setting
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.words import shortest, unknown

_IN_FILE = re.compile(r"In '([^']+)': ")
_PATH = re.compile(r"[\w.]+")
PLUGINS = {  # of Hydra, by the files that they bring
    "hydra/launcher/joblib": ("hydra-joblib-launcher",),
    "hydra/launcher/submitit_local": ("hydra-submitit-launcher",),
    "hydra/launcher/submitit_slurm": ("hydra-submitit-launcher",),
    "hydra/sweeper/optuna": (
        "hydra-optuna-sweeper",
        "; it excludes Optuna 5, with which border-tune searches: use another environment",
    ),
}


def explanation(error: Exception, files: Files, config_name: str, overrides: Sequence[str]) -> str:
    """What Hydra, OmegaConf, YAML or our own checks have refused, in our words."""
    if isinstance(error, ConfigError):
        return _file_of_range(error, files, overrides) + str(error)
    found = _IN_FILE.match(str(error))
    asks = found[1] if found else config_name
    file = files.file(asks) if asks not in (config_name, "hydra/config") else None
    if isinstance(error, MissingConfigException):
        return _missing(error, files, config_name, file)
    causes = (error, error.__cause__, error.__context__)
    cause = next((each for each in causes if isinstance(each, OmegaConfBaseException)), None)
    if cause is not None and (cause.full_key or cause.key) is not None:
        return _setting(cause, files, overrides, file)
    if isinstance(error, YAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    lines = [line for line in str(error).splitlines() if line and "To append" not in line]
    message = _IN_FILE.sub("", " ".join(lines[:3]), count=1)
    return f"{shortest(file)}: {message}" if file else message


def _file_of_range(error: ConfigError, files: Files, overrides: Sequence[str]) -> str:
    """Where a refused setting is written, unless the command line sets it."""
    found = _PATH.match(str(error))
    if found is None or _typed_for(found.group(), overrides):
        return ""
    return where(found.group(), files.parts)


def _missing(
    error: MissingConfigException, files: Files, config_name: str, file: Path | None
) -> str:
    """A file that no folder has: what exists instead, and which file asks for it."""
    path = str(error.missing_cfg_file)
    searched = f"searched in {', '.join(files.searched())}"
    if path == config_name:
        return f"{unknown('configuration', path, files.primary_configs())}; {searched}"
    group, _, name = path.rpartition("/")
    place = f"{shortest(file)}: " if file else ""
    if path in PLUGINS:
        return f"{place}{MissingPackage(f'{group}={name}', *PLUGINS[path])}"
    return f"{place}{unknown(group, name, files.options(group))}; {searched}"


def _setting(
    cause: OmegaConfBaseException, files: Files, overrides: Sequence[str], file: Path | None
) -> str:
    """A key or a value that OmegaConf refuses."""
    path, kind = str(cause.full_key or cause.key), cause.object_type
    typed = file is None and _typed_for(path, overrides)
    group = path.partition(".")[0]
    if not typed and group in GROUPS:
        bare = without_schema(group, files.parts)
        if bare:
            return bare
    place = "" if typed else where(path, files.parts)
    place = f"{shortest(file)}: " if file else place
    if not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return place + refused_value(cause, kind, path)
    known = list(cause.parent_node or ())
    if is_dataclass(kind):
        known = [each.name for each in fields(kind) if each.compare]  # the others composing sets
    if path in OPTIONAL_GROUPS:  # a file of theirs was not merged at the top
        return (
            f"{place}{path} has no settings of its own: {path}=NAME chooses a file, which must "
            "begin with the line `# @package _global_`"
        )
    return place + unknown_setting(path, known, _elsewhere(path))


def _typed_for(path: str, overrides: Sequence[str]) -> bool:
    """Whether an override sets the path, something below it, or all of what it lies in."""
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        around = value.startswith("{") and path.startswith(f"{key}.")
        if around or key == path or key.startswith(f"{path}.") or path.startswith(f"{key}["):
            return True
    return False


def _elsewhere(path: str) -> list[str]:
    """Where else there is a setting of this name: `agent.gamma` for `gamma`."""
    components = [entry.config_type for registry in GROUPS.values() for entry in registry]
    kinds: list[type[Any]] = [RunConfig, *SECTIONS.values(), *components]
    found = [
        f"{kind.path}.{each.name}".lstrip(".")
        for kind in kinds
        for each in fields(kind)
        if each.name == path.rpartition(".")[2]
    ]
    return [each for each in dict.fromkeys(found) if each != path]


def refused_value(error: OmegaConfBaseException, kind: Any, path: str) -> str:
    """`agent.gamma must be a number: …`: what is allowed, then what OmegaConf says of the value."""
    name, said = path.rpartition(".")[2], str(error).splitlines()[0]
    if is_dataclass(kind) and name in {each.name for each in fields(kind)}:
        assert isinstance(kind, type)
        if "is not a ListConfig" in said:
            said = f"write a list, as in {path}=[{error.value}]"
        return f"{path} must be {expected(kind, name)}: {said}"
    return f"{path}: {said}"


def without_schema(group: str, parts: Sequence[ConfigFile]) -> str:
    """How a file of a group must begin, where one names no component; else nothing."""
    header = f"the line `# @package {group}.NAME` and " if takes_several(group) else ""
    typed = {part.package for part in parts if part.path.startswith(f"schema/{group}/")}
    files = [part for part in parts if part.path.startswith(f"{group}/") and part.file]
    bare = [part for part in files if part.package not in typed and {*part.content} - {"defaults"}]
    if header and group in typed:  # hence beside the recorders, not among them
        bare += [part for part in files if part.package == group]
    file = bare[-1].file if bare else None
    if file is None:
        return ""
    return (
        f"{shortest(file)}: the file must begin with {header}"
        f"`defaults: [/schema/{group}/KIND@_here_, _self_]`, where KIND is one of "
        f"{', '.join(GROUPS[group].names())}"
    )


def where(path: str, parts: Sequence[ConfigFile]) -> str:
    """`file: ` of the last file that sets a key, or nothing where only the command line does."""
    found = [part.file for part in parts if part.file and _sets(part, path.partition("[")[0])]
    return f"{shortest(found[-1])}: " if found else ""


def _sets(part: ConfigFile, path: str) -> bool:
    content = OmegaConf.to_container(part.content, resolve=False)
    keys = flat(content, part.package)
    return part.package != path and any(f"{key}.".startswith(f"{path}.") for key in keys)
