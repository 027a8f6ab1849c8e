"""Checks of settings, before anything is built: what plain Hydra lets pass is refused, and a Python
caller's values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config.resolved import plain
from border_cli.config.schemas import run_schema, schema_of, takes_several
from border_cli.config.sources import ConfigFile, Files
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS, components
from border_cli.settings.base import Settings
from border_cli.settings.run import RunConfig, S
from border_cli.words import shortest, unknown

REFUSED = (ConfigError, HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError)


@contextmanager
def explained(files: Files, config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Turns what is refused inside the block, by whomever, into a ConfigError with file and key."""
    try:
        yield
    except REFUSED as error:
        # imported late, as below: for refusals alone
        from border_cli.config.explain import explanation

        raise ConfigError(explanation(error, files, config_name, overrides)) from error


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
            from border_cli.config.explain import without_schema

            raise ConfigError(without_schema(group, parts))


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
            from border_cli.config.explain import refused_value

            raise ConfigError(refused_value(error, kind, f"evaluator.env.{key}")) from error
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


def settings_of(kind: type[S], overrides: Sequence[Override]) -> S:
    """The settings of a command itself, from what is typed, with the types of their class."""
    config = OmegaConf.structured(kind)
    try:
        for each in overrides:
            OmegaConf.update(config, each.key_or_group, each.value())
        made: Any = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        from border_cli.config.explain import refused_value

        raise ConfigError(refused_value(error, kind, str(error.full_key))) from error
    found: S = made
    return found


def checked(config: RunConfig) -> RunConfig:
    """The settings of a Python caller, checked as a composition checks them.

    A caller may have assigned any value after the settings were made. Values are converted as from
    YAML, such as 1 to 1.0 and "cpu" to an enum. A wrong type is refused, and ranges and
    combinations are checked again.
    """
    chosen = components(config).items()
    kinds = {place: type(each) for place, each in chosen if isinstance(each, Settings)}
    try:
        return run_settings(with_types(plain(config), kinds))
    except OmegaConfBaseException as error:
        from border_cli.config.explain import refused_value

        raise ConfigError(refused_value(error, error.object_type, str(error.full_key))) from error
