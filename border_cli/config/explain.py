"""Hydra's refusals in our words: file, key, value, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config import check
from border_cli.config.describe import expected, meaning_of
from border_cli.config.sources import absolute, shown
from border_cli.core.config import SECTIONS
from border_cli.core.errors import ConfigError
from border_cli.core.words import unknown
from border_cli.registry import GROUPS, RECORDERS

if TYPE_CHECKING:
    from border_cli.config.compose import Loader

_REFUSED = (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError)
_IN_FILE = re.compile(r"In '([^']+)'")
_NAMED = re.compile(r"Could not (?:override|delete) '([^'@]+)")
_VALUE = re.compile(r"(?:Value|Invalid value) '(.*?)'(?: of type|, expected)")
_PATH = re.compile(r"[\w.]+")


@contextmanager
def explained(loader: Loader, config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Turns what Hydra, OmegaConf and YAML raise inside the block into a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_file_of_range(error, loader, overrides) + str(error)) from error
    except _REFUSED as error:
        raise ConfigError(_explain(error, loader, config_name, overrides)) from error


def _file_of_range(error: ConfigError, loader: Loader, overrides: Sequence[str]) -> str:
    """Where a refused setting is written, unless the command line sets it."""
    found = _PATH.match(str(error))
    if found is None or _typed_for(found.group(), overrides):
        return ""
    return check.where(found.group(), loader.parts)


def _explain(error: Exception, loader: Loader, config_name: str, overrides: Sequence[str]) -> str:
    file = _file_in(str(error), loader)
    if isinstance(error, MissingConfigException):
        return _missing(error, loader, config_name, overrides)
    if file and file[0].startswith("experiment/") and not _is_global(file[0], loader):
        return f"{file[1]} must begin with the line `# @package _global_`"
    cause = next(
        (
            each
            for each in (error, error.__cause__, error.__context__)
            if isinstance(each, OmegaConfBaseException)
        ),
        None,
    )
    if cause is not None and (cause.full_key or cause.key) is not None:
        return _setting(cause, loader, overrides, file[1] if file else "")
    if isinstance(error, YAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    if isinstance(error, InterpolationResolutionError):
        return f"{_interpolating(str(error), loader)}{str(error).splitlines()[0]}"
    return _composition(error, config_name, overrides, file)


def _missing(
    error: MissingConfigException, loader: Loader, config_name: str, overrides: Sequence[str]
) -> str:
    """A file that no folder has: what exists instead, and which file asks for it."""
    path = error.missing_cfg_file or ""
    searched = f"searched in {', '.join(loader.folders())}"
    if path == config_name:
        return f"{unknown('configuration', path, loader.primary_configs())}; {searched}"
    group, _, name = path.rpartition("/")
    file = _chooser(path, loader, config_name, overrides)
    place = f"{file}: " if file else ""
    if group.startswith("schema/"):
        kind = group.partition("/")[2]
        known = GROUPS[kind].names() if kind in GROUPS else []
        return (
            f"{place}{unknown(f'schema of {kind}', name, known)}; list the module that registers "
            "your own in `imports`"
        )
    return f"{place}{unknown(group, name, loader.options(group))}; {searched}"


def _chooser(path: str, loader: Loader, config_name: str, overrides: Sequence[str]) -> str | None:
    """The file whose defaults list asks for another one that is missing.

    Looked for in the files that are chosen, on the command line first, and in those that they
    choose.
    """
    asked = [text.partition("=") for text in overrides]
    todo = [f"{key}/{value}" for key, _, value in asked if key in loader.groups()]
    todo.append(config_name)
    for each in todo:  # which grows
        loaded = loader.repository.load_config(each)
        for default in (loaded.defaults_list if loaded else None) or []:
            wanted = _wanted(each, default)
            if path in wanted:
                return loader.file(each)
            todo += [found for found in wanted if found not in todo]
    return None


def _wanted(path: str, default: Any) -> list[str]:
    """The files that an entry of the defaults list of `path` asks for."""
    group = getattr(default, "group", None)
    if group is None:
        return [absolute(path, str(getattr(default, "path", "")))]
    names = default.value if isinstance(default.value, list) else [default.value]
    return [f"{absolute(path, group)}/{name}" for name in names]


def _interpolating(message: str, loader: Loader) -> str:
    """The file that holds an interpolation which cannot be resolved."""
    key = message.partition("'")[2].partition("'")[0]
    files = [
        each.file for each in loader.parts if each.file and "${" + key in str(each.content._content)
    ]
    return f"{shown(files[-1])}: " if files else ""


def _setting(
    cause: OmegaConfBaseException, loader: Loader, overrides: Sequence[str], file: str
) -> str:
    """A key or a value that OmegaConf refuses."""
    path = str(cause.full_key or cause.key)
    typed = _typed_for(path, overrides) if not file else None
    place = f"{file}: " if file else ("" if typed else check.where(path, loader.parts))
    what = f"{place}{typed or path}"
    parent, _, key = path.rpartition(".")
    kind = cause.object_type
    group = path.partition(".")[0]
    misplaced = group == RECORDERS.group and check.unnamed_recorders(loader.parts)
    if misplaced or (file and group in GROUPS and _without_schema(kind, group)):
        return check.without_schema(group, loader.parts)
    if parent == RECORDERS.group and isinstance(cause, ConfigAttributeError | ConfigKeyError):
        packages = {part.package for part in loader.parts}
        chosen = [each.partition(".")[2] for each in packages if each.startswith(f"{parent}.")]
        if not chosen:
            return f"{what}: the run has no recorders (recorder=none)"
        return f"{place}{unknown(parent, key, sorted(chosen))}"
    if isinstance(cause, MissingMandatoryValue):
        return f"{what} has no value"
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and _is_schema(kind):
        return f"{place}{check.unknown_setting(kind, parent, key)}"
    if isinstance(cause, ValidationError) and _is_schema(kind):
        value = _VALUE.search(str(cause))
        got = f", got {value.group(1)!r}" if value and not typed else ""
        write = _rewritten(typed or "", expected(kind, key))
        return f"{what} must be {expected(kind, key)}{got}{write}: {meaning_of(kind, key)}"
    listed = _list_with(cause)
    if listed is not None:
        owner, name = listed
        return f"{what} must be {expected(owner, name)}: {meaning_of(owner, name)}"
    if "does not support deletion" in str(cause):
        return f"{what}: a setting can be changed but not removed; give it a value, {path}=…"
    return f"{what}: {str(cause).splitlines()[0]}"


def _list_with(cause: OmegaConfBaseException) -> tuple[type[Any], str] | None:
    """The schema and the setting whose list has the entry that is refused."""
    entries = cause.parent_node
    owner = entries._get_parent() if isinstance(entries, ListConfig) else None
    kind = OmegaConf.get_type(owner) if isinstance(owner, DictConfig) else None
    name = str(entries._key()) if entries is not None else ""
    return (kind, name) if _is_schema(kind) else None


def _rewritten(typed: str, allowed: str) -> str:
    """How a value is written that is right but for its form: 1e5 for an integer, one entry for a
    list."""
    key, _, value = typed.partition("=")
    if allowed.startswith("an integer") and re.fullmatch(r"\d+(\.\d+)?e\d+|\d+\.0*", value):
        number = float(value)
        return f"; write {key}={number:.0f}" if number.is_integer() else ""
    if allowed.startswith("a list") and value and value[0] not in "[{":
        return f"; write '{key}=[{value}]'"
    return ""


def _is_schema(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and is_dataclass(kind)


def _without_schema(kind: Any, group: str) -> bool:
    """A file without its schema is merged into what all components of the group share."""
    bare = _is_schema(kind) and kind.__module__ == "border_cli.core.config"
    return (bare and group not in SECTIONS) or (group == "recorder" and kind is dict)


def _typed_for(path: str, overrides: Sequence[str]) -> str | None:
    """The override that sets the path, something below it, or all of what it lies in."""
    for text in reversed(overrides):
        key, _, value = text.lstrip("+~").partition("=")
        around = value.startswith("{") and path.startswith(f"{key}.")
        if around or key == path or key.startswith(f"{path}.") or path.startswith(f"{key}["):
            return text
    return None


def _composition(
    error: Exception, name: str, overrides: Sequence[str], place: tuple[str, str] | None
) -> str:
    """Everything else that Hydra refuses while it puts files together.

    `place`: the path and the file that its message begins with.
    """
    text = str(error)
    path, file = place or ("", "")
    named = _NAMED.search(text)
    if named and "No match in the defaults list" in text and not file:
        group = named.group(1)
        return (
            f"{_typed_for(group, overrides) or group}: the configuration {name!r} has no "
            f"choice of {group}. A saved configuration has fixed components and takes values only; "
            f"start from `border-train {group}=…` instead"
        )
    folder, _, option = path.rpartition("/")
    if named and path == name and folder:
        return f"-cn {name}: choose a file of a group with {folder}={option}"
    if named and folder and named.group(1).startswith(f"{folder}/"):
        group = named.group(1).removeprefix(f"{folder}/")
        return f"{file}: write `override /{group}: …`, with the slash"
    if twice := re.search(r"Multiple values for ([\w/]+)", text):
        group = twice.group(1)
        return (
            f"{group} is chosen twice. In a file write `override /{group}: …`, on the command "
            f"line {group}=… without a plus"
        )
    if exists := re.search(r"already at '([^']+)'", text):
        return f"{exists.group(1)} exists: write {exists.group(1)}=… without a plus"
    if absent := re.search(r"Could not delete from config. '([^']+)'", text):
        return f"~{absent.group(1)}: there is nothing to remove"
    lines = [line for line in text.splitlines() if line and not line.startswith("To append")]
    message = re.sub(r"^In '[^']+': ", "", " ".join(lines[:2]))
    return f"{file}: {message}" if file else message


def _file_in(message: str, loader: Loader) -> tuple[str, str] | None:
    """The path and the file that Hydra's message begins with."""
    found = _IN_FILE.match(message)
    file = loader.file(found.group(1)) if found else None
    return (found.group(1), file) if found and file else None


def _is_global(path: str, loader: Loader) -> bool:
    loaded = loader.repository.load_config(path)
    return loaded is not None and loaded.header.get("package") == "_global_"
