"""Refusals of settings, before anything is built: keys and values that plain Hydra lets pass, with
file and nearest name; and a Python caller's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.describe import expected
from border_cli.config.interpolation import plain
from border_cli.config.overrides import OPTIONAL_GROUPS
from border_cli.config.schemas import run_schema, schema_of
from border_cli.config.sources import Part
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS, RECORDERS
from border_cli.settings.base import Settings, flat
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.words import nearest, shortest


def unknown_setting(path: str, known: Sequence[str]) -> str:
    """The refusal of an unknown key: the nearest setting, and all that exist there."""
    parent, _, key = path.rpartition(".")
    if path in OPTIONAL_GROUPS:  # a file of theirs was not merged at the top
        return (
            f"{key} has no settings of its own: {key}=NAME chooses a file, which must begin with "
            "the line `# @package _global_`"
        )
    near = nearest(key, known)
    similar = _elsewhere(path) or ([f"{parent}.{near}".lstrip(".")] if near else [])
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    there = ", ".join(known) or "no settings"
    return f"unknown setting {path!r}{hint} ({parent or 'a run'} has {there})"


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
        return f"{path} must be {expected(kind, name)}: {said}"
    return f"{path}: {said}"


def refuse_untyped(config: DictConfig, parts: Sequence[Part]) -> None:
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
        several = group == RECORDERS.group
        members = [node._get_node(key) for key in node] if several else [node]
        misplaced = several and is_dataclass(OmegaConf.get_type(node))
        if misplaced or any(OmegaConf.get_type(member) not in kinds for member in members):
            raise ConfigError(without_schema(group, parts))


def without_schema(group: str, parts: Sequence[Part]) -> str:
    """How a file of a group must begin, where one names no component; else nothing."""
    header = "the line `# @package recorder.NAME` and " if group == RECORDERS.group else ""
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


def where(path: str, parts: Sequence[Part]) -> str:
    """`file: ` of the last file that sets a key, or nothing where only the command line does."""
    found = [part.file for part in parts if part.file and _sets(part, path.partition("[")[0])]
    return f"{shortest(found[-1])}: " if found else ""


def _sets(part: Part, path: str) -> bool:
    content = OmegaConf.to_container(part.content, resolve=False)
    keys = flat(content, part.package)
    return part.package != path and any(f"{key}.".startswith(f"{path}.") for key in keys)


def with_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> DictConfig:
    """Plain values merged into the schemas of their components: `recorder.jsonl` is a place."""
    config = deepcopy(run_schema())
    for place, kind in kinds.items():
        OmegaConf.update(config, place, deepcopy(schema_of(kind)), force_add=True)
    config.merge_with(dict(values))
    return config


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
        try:
            OmegaConf.structured(kind)[key] = value
        except OmegaConfBaseException as error:
            raise ConfigError(refused_value(error, kind, f"evaluator.env.{key}")) from error
    return made


def checked(config: RunConfig) -> RunConfig:
    """The settings of a Python caller, checked as a composition checks them.

    A caller may have assigned any value after the settings were made. Values are converted as from
    YAML, such as 1 to 1.0 and "cpu" to an enum. A wrong type is refused, and ranges and
    combinations are checked again.
    """
    kinds: dict[str, type[Any]] = {}
    for group in GROUPS:
        chosen = getattr(config, group)
        members = chosen if isinstance(chosen, dict) else {"": chosen}
        for key, settings in members.items():
            if isinstance(settings, Settings):
                kinds[f"{group}.{key}".rstrip(".")] = type(settings)
    try:
        return run_settings(with_types(plain(config), kinds))
    except OmegaConfBaseException as error:
        raise ConfigError(refused_value(error, error.object_type, str(error.full_key))) from error
