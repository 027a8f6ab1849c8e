"""Checks of settings before anything is built, and their error messages.

Refuses values that plain Hydra accepts, and invalid values from Python callers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config.describe import expected
from border_cli.config.files import OPTIONAL_GROUPS, ConfigFile, Files, schema_of, takes_several
from border_cli.config.job import plain
from border_cli.errors import ConfigError, MissingPackage
from border_cli.registry import GROUPS, components
from border_cli.settings.base import Settings, flat, unknown_setting
from border_cli.settings.run import SECTIONS, RunConfig, S
from border_cli.words import shortest, unknown

CONFIG_ERRORS = (
    ConfigError,
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    ValueError,
    OSError,
)
PLUGIN_PACKAGES = {  # arguments of MissingPackage, by the config file of a Hydra plug-in
    "hydra/launcher/joblib": ("hydra-joblib-launcher",),
    "hydra/launcher/submitit_local": ("hydra-submitit-launcher",),
    "hydra/launcher/submitit_slurm": ("hydra-submitit-launcher",),
    "hydra/sweeper/optuna": (
        "hydra-optuna-sweeper",
        "; it excludes Optuna 5, which border-tune uses: install it in another environment",
    ),
}
_IN_FILE = re.compile(r"In '([^']+)': ")
_PATH = re.compile(r"[\w.]+")


def check_settings(config: RunConfig) -> RunConfig:
    """Checks the settings of a Python caller in the same way as composed settings.

    A caller may have assigned any value after construction. Values are converted as from YAML, such
    as 1 to 1.0 and "tanh" to an enum. Wrong types are refused, and ranges and combinations are
    checked again.
    """
    parts = components(config).items()
    kinds = {path: type(part) for path, part in parts if isinstance(part, Settings)}
    with _explained_values():
        return run_settings(with_types(plain(config), kinds))


def settings_of(kind: type[S], overrides: Sequence[Override]) -> S:
    """Builds the settings of a command (not of its runs) from overrides, typed by their class."""
    config = OmegaConf.structured(kind)
    with _explained_values(kind):
        for override in overrides:
            OmegaConf.update(config, override.key_or_group, override.value())
        settings: S = OmegaConf.to_object(config)  # type: ignore[assignment]
        return settings


def with_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> DictConfig:
    """Merges plain values into schemas. `kinds` maps paths (`recorder.jsonl`) to their classes."""
    config = deepcopy(schema_of(RunConfig))
    for path, kind in kinds.items():
        OmegaConf.update(config, path, deepcopy(schema_of(kind)), force_add=True)
    config.merge_with(dict(values))
    return config


def refuse_untyped(config: DictConfig, parts: Sequence[ConfigFile]) -> None:
    """Refuses files that do not start with a schema, because their values have no types."""
    if OmegaConf.get_type(config) is not RunConfig:
        primary = [part.file for part in parts if part.file and "/" not in part.path][-1]
        raise ConfigError(
            f"{shortest(primary)}: the file must begin with `defaults: [config, _self_]`"
        )
    for group, registry in GROUPS.items():
        node = config._get_node(group)
        assert isinstance(node, DictConfig)
        if node._is_missing() or node._is_none():
            raise ConfigError(f"no {group} is chosen: {group}=NAME")
        kinds = [entry.config_type for entry in registry]
        several = takes_several(group)
        members = [node._get_node(key) for key in node] if several else [node]
        misplaced = several and is_dataclass(OmegaConf.get_type(node))
        if misplaced or any(OmegaConf.get_type(member) not in kinds for member in members):
            raise ConfigError(_explain_no_schema(group, parts))


def run_settings(config: DictConfig) -> RunConfig:
    """Builds the checked settings of a run. Interpolations may refer to anything in `config`."""
    values: dict[str, Any] = {}
    for key in [str(name) for name in config if name != "hydra"]:
        value = config[key]
        values[key] = OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
    field_names = {item.name for item in fields(RunConfig)}
    run = RunConfig(**{key: value for key, value in values.items() if key in field_names})
    for key in values.keys() - field_names:  # added with `+`
        setattr(run, key, values[key])  # raises, with the nearest name
    kind = type(run.env)
    for key, value in run.evaluator.env.items():  # same checks as for `env`
        if key not in kind.__dataclass_fields__:
            raise ConfigError(unknown_setting(f"evaluator.env.{key}", [*kind.__dataclass_fields__]))
        with _explained_values(kind, f"evaluator.env.{key}"):
            OmegaConf.structured(kind)[key] = value
    _complete_exploration(run)
    return run


def _complete_exploration(run: RunConfig) -> None:
    """Adds defaults for missing settings to the mappings in `actor_manager.exploration`, and steps
    to their schedules."""
    agent, entries = run.agent, run.actor_manager.exploration
    names = agent.exploration_settings
    for actor_id, entry in enumerate(entries or ()):
        if not isinstance(entry, dict):
            continue
        node = OmegaConf.structured(type(agent))
        try:
            for name in entry.keys() - names:
                raise ConfigError(unknown("exploration setting", name, names))
            for name, value in entry.items():
                node[name] = value
            full = run.trainer.with_steps(replace(agent, **{name: node[name] for name in names}))
        except (ConfigError, OmegaConfBaseException) as error:
            raise ConfigError(
                f"actor_manager.exploration of actor {actor_id}: {' '.join(str(error).split())}"
            ) from error
        entries[actor_id] = {name: getattr(full, name) for name in names} or None


@contextmanager
def _explained_values(kind: Any = None, path: str | None = None) -> Iterator[None]:
    """Raises errors of OmegaConf inside the block as ConfigError. `kind` (a dataclass) and `path`
    replace those of the error."""
    try:
        yield
    except OmegaConfBaseException as error:
        key = path or str(error.full_key)
        raise ConfigError(_explain_value(error, kind or error.object_type, key)) from error


@contextmanager
def explain_errors(files: Files, overrides: Sequence[str]) -> Iterator[None]:
    """Raises errors inside the block as ConfigError, with the file and the key."""
    try:
        yield
    except CONFIG_ERRORS as error:
        raise ConfigError(explanation(error, files, overrides)) from error


def explanation(error: Exception, files: Files, overrides: Sequence[str]) -> str:
    """Describes an error of Hydra, OmegaConf, YAML or our own checks, with the file and the key."""
    if isinstance(error, ConfigError):
        key = _PATH.match(str(error))
        path = key.group() if key else ""
        return f"{'' if _is_typed(path, overrides) else _find_file(path, files.parts)}{error}"
    match = _IN_FILE.match(str(error))
    name = match[1] if match else files.config_name
    file = files.file(name) if name not in (files.config_name, "hydra/config") else None
    prefix = f"{shortest(file)}: " if file else ""
    if isinstance(error, MissingConfigException):
        return prefix + _explain_missing_file(error, files)
    causes = (error, error.__cause__, error.__context__)
    cause = next((exc for exc in causes if isinstance(exc, OmegaConfBaseException)), None)
    if cause is not None and (cause.full_key or cause.key) is not None:
        return _explain_setting(cause, files, overrides, prefix)
    if isinstance(error, YAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    lines = [line for line in str(error).splitlines() if line and "To append" not in line]
    return prefix + _IN_FILE.sub("", " ".join(lines[:3]), count=1)


def _explain_missing_file(error: MissingConfigException, files: Files) -> str:
    """Describes a file that does not exist, with the existing options."""
    path = str(error.missing_cfg_file)
    group, _, name = path.rpartition("/")
    if path in PLUGIN_PACKAGES:
        return str(MissingPackage(f"{group}={name}", *PLUGIN_PACKAGES[path]))
    problem = unknown(group, name, files.options(group))
    if path == files.config_name:
        problem = unknown("configuration", path, files.primary_configs())
    return f"{problem}; searched in {', '.join(files.searched())}"


def _explain_setting(
    cause: OmegaConfBaseException, files: Files, overrides: Sequence[str], prefix: str
) -> str:
    """Describes a key or value that OmegaConf refuses. `prefix` names the file that uses it."""
    path, kind = str(cause.full_key or cause.key), cause.object_type
    is_typed = not prefix and _is_typed(path, overrides)
    group = path.partition(".")[0]
    problem = _explain_no_schema(group, files.parts) if group in GROUPS and not is_typed else ""
    if problem:
        return problem
    prefix = prefix or ("" if is_typed else _find_file(path, files.parts))
    if not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return prefix + _explain_value(cause, kind, path)
    names = list(cause.parent_node or ())
    if is_dataclass(kind):
        names = [item.name for item in fields(kind) if item.compare]  # without `option`
    if path in OPTIONAL_GROUPS:  # their files must be merged at the top level
        return (
            f"{prefix}{path} has no settings of its own: {path}=NAME chooses a file, which must "
            "begin with the line `# @package _global_`"
        )
    return prefix + unknown_setting(path, names, _find_elsewhere(path))


def _is_typed(path: str, overrides: Sequence[str]) -> bool:
    """Returns whether an override sets the path, a key below it, or a mapping that contains it."""
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        contains = value.startswith("{") and path.startswith(f"{key}.")
        if contains or f"{key}.".startswith(f"{path}.") or path.startswith(f"{key}["):
            return True
    return False


def _find_elsewhere(path: str) -> list[str]:
    """Returns other paths with a setting of this name, such as `agent.gamma` for `gamma`."""
    of_components = [entry.config_type for registry in GROUPS.values() for entry in registry]
    kinds: list[type[Any]] = [RunConfig, *SECTIONS.values(), *of_components]
    others = [
        f"{kind.path}.{item.name}".lstrip(".")
        for kind in kinds
        for item in fields(kind)
        if item.name == path.rpartition(".")[2]
    ]
    return [other for other in dict.fromkeys(others) if other != path]


def _explain_value(error: OmegaConfBaseException, kind: Any, path: str) -> str:
    """Describes an invalid value and what is allowed: `agent.gamma must be a number: …`."""
    name, reason = path.rpartition(".")[2], str(error).splitlines()[0]
    if is_dataclass(kind) and name in {item.name for item in fields(kind)}:
        assert isinstance(kind, type)
        if "is not a ListConfig" in reason:
            reason = f"write a list, as in {path}=[{error.value}]"
        return f"{path} must be {expected(kind, name)}: {reason}"
    return f"{path}: {reason}"


def _explain_no_schema(group: str, parts: Sequence[ConfigFile]) -> str:
    """Describes how the files of a group must begin, if one has no schema; else returns ""."""
    header = f"the line `# @package {group}.NAME` and " if takes_several(group) else ""
    typed = {part.package for part in parts if part.path.startswith(f"schema/{group}/")}
    files = [part for part in parts if part.path.startswith(f"{group}/") and part.file]
    bare = [part for part in files if part.package not in typed and {*part.content} - {"defaults"}]
    if header and group in typed:  # merged as the group itself, not as a member
        bare += [part for part in files if part.package == group]
    file = bare[-1].file if bare else None
    if file is None:
        return ""
    return (
        f"{shortest(file)}: the file must begin with {header}"
        f"`defaults: [/schema/{group}/KIND@_here_, _self_]`, where KIND is one of "
        f"{', '.join(GROUPS[group].names())}"
    )


def _find_file(path: str, parts: Sequence[ConfigFile]) -> str:
    """Returns `file: ` for the last file that sets a key; "" if only the command line sets it."""
    path = path.partition("[")[0]
    for part in reversed(parts):
        keys = flat(OmegaConf.to_container(part.content, resolve=False), part.package)
        below = any(f"{key}.".startswith(f"{path}.") for key in keys)
        if part.file and part.package != path and below:
            return f"{shortest(part.file)}: "
    return ""
