"""Checks of settings, before anything is built: what plain Hydra lets pass is refused, and a Python
caller's values are. Refusals are worded with file and key, and with what is allowed or known there.
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

REFUSED = (ConfigError, HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError)
PLUGINS = {  # of Hydra, by the files that they bring
    "hydra/launcher/joblib": ("hydra-joblib-launcher",),
    "hydra/launcher/submitit_local": ("hydra-submitit-launcher",),
    "hydra/launcher/submitit_slurm": ("hydra-submitit-launcher",),
    "hydra/sweeper/optuna": (
        "hydra-optuna-sweeper",
        "; it excludes Optuna 5, with which border-tune searches: use another environment",
    ),
}
_IN_FILE = re.compile(r"In '([^']+)': ")
_PATH = re.compile(r"[\w.]+")


def checked(config: RunConfig) -> RunConfig:
    """The settings of a Python caller, checked as a composition checks them.

    A caller may have assigned any value after the settings were made. Values are converted as from
    YAML, such as 1 to 1.0 and "cpu" to an enum. A wrong type is refused, and ranges and
    combinations are checked again.
    """
    chosen = components(config).items()
    kinds = {place: type(each) for place, each in chosen if isinstance(each, Settings)}
    with _refusing_values():
        return run_settings(with_types(plain(config), kinds))


def settings_of(kind: type[S], overrides: Sequence[Override]) -> S:
    """The settings of a command itself, from what is typed, with the types of their class."""
    config = OmegaConf.structured(kind)
    with _refusing_values(kind):
        for each in overrides:
            OmegaConf.update(config, each.key_or_group, each.value())
        settings: S = OmegaConf.to_object(config)  # type: ignore[assignment]
        return settings


def with_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> DictConfig:
    """Plain values merged into the schemas of their components: `recorder.jsonl` is a place."""
    config = deepcopy(schema_of(RunConfig))
    for place, kind in kinds.items():
        OmegaConf.update(config, place, deepcopy(schema_of(kind)), force_add=True)
    config.merge_with(dict(values))
    return config


def refuse_untyped(config: DictConfig, parts: Sequence[ConfigFile]) -> None:
    """Refuses files that did not begin with their schema: what they set has no types then."""
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
            raise ConfigError(_without_schema(group, parts))


def run_settings(config: DictConfig) -> RunConfig:
    """The checked settings of a run; their interpolations may name whatever else is merged."""
    values: dict[str, Any] = {}
    for key in [str(each) for each in config if each != "hydra"]:
        value = config[key]
        values[key] = OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
    known = {each.name for each in fields(RunConfig)}
    made = RunConfig(**{key: value for key, value in values.items() if key in known})
    for key in values.keys() - known:  # added with `+`
        setattr(made, key, values[key])  # refuses it with the nearest name
    kind = type(made.env)
    for key, value in made.evaluator.env.items():  # refused as `env` itself would refuse it
        if key not in kind.__dataclass_fields__:
            raise ConfigError(unknown_setting(f"evaluator.env.{key}", [*kind.__dataclass_fields__]))
        with _refusing_values(kind, f"evaluator.env.{key}"):
            OmegaConf.structured(kind)[key] = value
    _complete_exploration(made)
    return made


def _complete_exploration(made: RunConfig) -> None:
    """Each mapping of `actor_manager.exploration` gets the defaults of the settings that it lacks,
    with the steps of schedules."""
    agent, listed = made.agent, made.actor_manager.exploration
    names = agent.exploration_settings
    for actor_id, given in enumerate(listed or ()):
        if not isinstance(given, dict):
            continue
        config = OmegaConf.structured(type(agent))
        try:
            for name in given.keys() - names:
                raise ConfigError(unknown("exploration setting", name, names))
            for name, value in given.items():
                config[name] = value
            own = made.trainer.with_steps(replace(agent, **{name: config[name] for name in names}))
        except (ConfigError, OmegaConfBaseException) as error:
            raise ConfigError(
                f"actor_manager.exploration of actor {actor_id}: {' '.join(str(error).split())}"
            ) from error
        listed[actor_id] = {name: getattr(own, name) for name in names}


@contextmanager
def _refusing_values(kind: Any = None, path: str | None = None) -> Iterator[None]:
    """Words what OmegaConf refuses inside the block: of a dataclass, and under a path, that are
    those of the error unless they are given."""
    try:
        yield
    except OmegaConfBaseException as error:
        key = path or str(error.full_key)
        raise ConfigError(_refused_value(error, kind or error.object_type, key)) from error


@contextmanager
def explained(files: Files, overrides: Sequence[str]) -> Iterator[None]:
    """Turns what is refused inside the block, by whomever, into a ConfigError with file and key."""
    try:
        yield
    except REFUSED as error:
        raise ConfigError(explanation(error, files, overrides)) from error


def explanation(error: Exception, files: Files, overrides: Sequence[str]) -> str:
    """What Hydra, OmegaConf, YAML or our own checks have refused, in our words."""
    if isinstance(error, ConfigError):
        key = _PATH.match(str(error))
        path = key.group() if key else ""
        return f"{'' if _typed_for(path, overrides) else _where(path, files.parts)}{error}"
    found = _IN_FILE.match(str(error))
    asks = found[1] if found else files.config_name
    file = files.file(asks) if asks not in (files.config_name, "hydra/config") else None
    place = f"{shortest(file)}: " if file else ""
    if isinstance(error, MissingConfigException):
        return place + _missing(error, files)
    causes = (error, error.__cause__, error.__context__)
    cause = next((each for each in causes if isinstance(each, OmegaConfBaseException)), None)
    if cause is not None and (cause.full_key or cause.key) is not None:
        return _setting(cause, files, overrides, place)
    if isinstance(error, YAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    lines = [line for line in str(error).splitlines() if line and "To append" not in line]
    return place + _IN_FILE.sub("", " ".join(lines[:3]), count=1)


def _missing(error: MissingConfigException, files: Files) -> str:
    """A file that no folder has: what exists instead."""
    path = str(error.missing_cfg_file)
    group, _, name = path.rpartition("/")
    if path in PLUGINS:
        return str(MissingPackage(f"{group}={name}", *PLUGINS[path]))
    known = unknown(group, name, files.options(group))
    if path == files.config_name:
        known = unknown("configuration", path, files.primary_configs())
    return f"{known}; searched in {', '.join(files.searched())}"


def _setting(
    cause: OmegaConfBaseException, files: Files, overrides: Sequence[str], place: str
) -> str:
    """A key or a value that OmegaConf refuses; `place` is the file that asks for it, if any."""
    path, kind = str(cause.full_key or cause.key), cause.object_type
    typed = not place and _typed_for(path, overrides)
    group = path.partition(".")[0]
    bare = _without_schema(group, files.parts) if group in GROUPS and not typed else ""
    if bare:
        return bare
    place = place or ("" if typed else _where(path, files.parts))
    if not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return place + _refused_value(cause, kind, path)
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
        if around or f"{key}.".startswith(f"{path}.") or path.startswith(f"{key}["):
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


def _refused_value(error: OmegaConfBaseException, kind: Any, path: str) -> str:
    """`agent.gamma must be a number: …`: what is allowed, then what OmegaConf says of the value."""
    name, said = path.rpartition(".")[2], str(error).splitlines()[0]
    if is_dataclass(kind) and name in {each.name for each in fields(kind)}:
        assert isinstance(kind, type)
        if "is not a ListConfig" in said:
            said = f"write a list, as in {path}=[{error.value}]"
        return f"{path} must be {expected(kind, name)}: {said}"
    return f"{path}: {said}"


def _without_schema(group: str, parts: Sequence[ConfigFile]) -> str:
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


def _where(path: str, parts: Sequence[ConfigFile]) -> str:
    """`file: ` of the last file that sets a key, or nothing where only the command line does."""
    path = path.partition("[")[0]
    for part in reversed(parts):
        keys = flat(OmegaConf.to_container(part.content, resolve=False), part.package)
        below = any(f"{key}.".startswith(f"{path}.") for key in keys)
        if part.file and part.package != path and below:
            return f"{shortest(part.file)}: "
    return ""
