"""Tuned files: values in all groups for an agent, or for a pair of agent and env.

`conf/tuned/<agent>.yaml` has the values that an algorithm needs with any env, such as the replay
ratio 20 of `redq`. `conf/tuned/<agent>_<env>.yaml` has the best values for a pair of options; a
bare `env.id=…` has no pair. The pair of the agent and the env's family comes between these two. The
family is the preset on which the env's file is based, as `pong` is based on `atari`. Hydra receives
the pair's file as one that builds on the other two; a missing pair is replaced by an empty file. If
an agent's file is based on that of another agent, the tuned file of that agent applies as well,
with lower precedence, but its pairs do not. Saved settings have no `tuned`, so tuned values are
never applied to them again.

Values do not apply if the chosen option differs too much from the one that the file is made for:

- Settings that the chosen option lacks but other options have are dropped.
- If an option is chosen by the command line, an experiment or the trainer, and not by the agent,
  the settings in its file (such as `n_steps`) take precedence over tuned values.
- With `trainer=offline`, the trainer values of a file made for an online trainer are dropped.

`drop_weaker` then takes the limits in steps and time from one place only. If intervals are set
in both updates and env steps, the one that is set nearer to the command line applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from border_cli.config.files import (
    SCHEMA,
    TUNED,
    ConfigFile,
    Files,
    file_of,
    overridden,
    schema,
    settings_in,
)
from border_cli.config.job import Source
from border_cli.errors import ConfigError
from border_cli.registry import AGENTS, GROUPS
from border_cli.settings.run import INTERVALS, TrainerConfig

# Limits that are certain to end a run, unlike `trainer.stop_at_score` and `trainer.patience`.
HARD_LIMITS = {"trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s"}
ALL_LIMITS = {*HARD_LIMITS, "trainer.stop_at_score", "trainer.patience"}
# Settings that only online trainers use: a file that sets one is made for an online trainer.
OF_ONLINE_TRAINERS = {"samples_per_opt_step", "warmup_period", "sync_interval"}
# Pairs of an interval in updates and one in env steps, of which only one applies.
PAIRS = [{f"trainer.{name}_interval", f"trainer.{name}_interval_env_steps"} for name in INTERVALS]


def choose_trainer(files: Files, overrides: Sequence[str]) -> None:
    """Serves the primary config with `trainer: sync` if the agent learns from rollouts.

    The agent's file cannot choose the trainer, because a trainer overrides the agent's choices.
    """
    agent = _kinds(files.parts).get("agent")
    if agent is None or not agent.on_policy:
        return
    content: Any = files.edit_file(files.config_name).config
    for entry in content.get("defaults") or []:
        if isinstance(entry, DictConfig) and "trainer" in entry:
            entry["trainer"] = "sync"
            files.find_parts(overrides, again=True)


def add_tuned(files: Files, typed_groups: Set[str]) -> None:
    """Adds the tuned files of agent and family to a composition, and serves all tuned files without
    values that do not apply. Options of `typed_groups` are chosen on the command line.

    Does nothing if there is no `tuned` in the defaults list, because it is switched off or because
    the settings are saved ones.
    """
    parts = files.parts
    position = next(
        (index for index, part in enumerate(parts) if part.path.startswith(f"{TUNED}/")), None
    )
    if position is None:
        return
    pair, general, kinds = parts[position], _general_parts(files), _kinds(parts)
    protected = _protected_settings(parts, typed_groups)
    files.parts = [*parts[:position], *general, *parts[position:]]
    for index, part in enumerate(files.parts):
        is_tuned = part.path.startswith(f"{TUNED}/") and not part.package
        if not (is_tuned and isinstance(part.content, DictConfig)):
            continue
        applicable = _select_applicable(part, kinds, protected)
        files.parts[index] = replace(part, content=applicable)
        content = applicable.copy()
        if part.path == pair.path:
            defaults = content.get("defaults") or []
            content["defaults"] = [*(f"/{base.path}" for base in general), *defaults]
        files.edit_file(part.path).config = content


def _general_parts(files: Files) -> list[ConfigFile]:
    """Returns the tuned files of an agent (`tuned/dqn`) and of the agent with the families of its
    env (`tuned/dqn_atari` for an env based on `env/atari`).

    If the agent's file is based on others, their tuned files come first.
    """
    agents, envs = _files_of("agent", files.parts), _files_of("env", files.parts)
    parts = []
    for name in [*agents, *(f"{agents[-1]}_{family}" for family in envs[:-1] if agents)]:
        path = f"{TUNED}/{name}"
        result = files.read(path)
        if result is None:
            continue
        if "defaults" in result.config:
            raise ConfigError(f"{path}.yaml: it may only set values: remove its defaults list")
        parts.append(ConfigFile(path, "", file_of(result.path, path), result.config))
    return parts


def _files_of(group: str, parts: Sequence[ConfigFile]) -> list[str]:
    """Returns the names of the files that make up the option of a group, base files first."""
    paths = [part.path for part in parts if part.package == group]
    names = [path.removeprefix(f"{group}/") for path in paths if path.startswith(f"{group}/")]
    return list(dict.fromkeys(names))


def _kinds(parts: Sequence[ConfigFile]) -> dict[str, type[Any]]:
    """Returns the settings class of the chosen option of each group."""
    kinds = {}
    for part in parts:
        is_schema = part.path.startswith(f"{SCHEMA}/{part.package}/")
        kind = OmegaConf.get_type(schema(part.path)) if is_schema else None
        if kind is not None:
            kinds[part.package] = kind
    return kinds


def _protected_settings(parts: Sequence[ConfigFile], typed_groups: Set[str]) -> set[str]:
    """Returns the settings that tuned files must not replace: those in the files of options that
    are typed, or chosen by a file other than the agent's."""
    groups = set(typed_groups)
    for part in parts:
        if part.package != AGENTS.group:
            groups |= overridden(part.path, part.content).keys()
    return {
        setting
        for part in parts
        if part.file and part.package in groups and part.path.startswith(f"{part.package}/")
        for setting in settings_in(part.content, part.package)
    }


def _select_applicable(
    part: ConfigFile, kinds: Mapping[str, type[Any]], protected: Set[str]
) -> DictConfig:
    """Returns the content of a tuned file without `protected` settings, and without settings that
    the chosen option lacks but others have. Unknown settings remain, and are refused later."""
    values: Any = OmegaConf.to_container(part.content, resolve=False)
    for group, kind in kinds.items():
        if isinstance(values.get(group), dict):
            names = {item.name for entry in GROUPS[group] for item in fields(entry.config_type)}
            absent = names - {item.name for item in fields(kind)}
            values[group] = {
                key: value
                for key, value in values[group].items()
                if key not in absent and f"{group}.{key}" not in protected
            }
    trainer = values.get("trainer")
    is_online = isinstance(trainer, dict) and OF_ONLINE_TRAINERS & trainer.keys()
    if is_online and kinds.get("trainer", TrainerConfig).offline:
        del values["trainer"]
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def drop_weaker(files: Files, overrides: Sequence[Override]) -> None:
    """Removes limits and intervals from the served files if the command line, or a later file,
    replaces them."""
    typed = {
        name
        for override in overrides
        if not (override.is_sweep_override() or override.is_delete())
        for name in settings_in(override.value(), override.key_or_group)
    }
    written = [
        (part, settings_in(part.content, part.package))
        for part in reversed(files.parts)
        if part.file
    ]
    _drop_limits(files, written, typed)
    _drop_intervals(files, written, typed)


# The files of a composition and the settings in each, nearest to the command line first.
Written = Sequence[tuple[ConfigFile, set[str]]]


def _drop_limits(files: Files, written: Written, typed: set[str]) -> None:
    """Sets all other limits to null, so that none ends a run before the requested limit.

    Limits on the command line replace all others. Without these, the last file that sets a limit
    replaces earlier ones. A score or patience alone replaces no limit. The null values are served
    as part of the last file that sets a limit or belongs to the trainer.
    """
    limits = typed & ALL_LIMITS
    for _, names in written:
        if not limits & HARD_LIMITS:
            limits |= names
    targets = [part for part, names in written if part.package == "trainer" or names & ALL_LIMITS]
    if limits & HARD_LIMITS and targets:
        last = targets[0]
        content: Any = files.edit_file(last.path).config
        for limit in ALL_LIMITS - limits:
            key = limit.removeprefix(f"{last.package}.")
            OmegaConf.update(content, key, None, force_add=True)


def _drop_intervals(files: Files, written: Written, typed: set[str]) -> None:
    """Removes an interval from the served files if the command line, or a nearer file, sets the
    other interval of its pair. If one file sets both, they are refused later."""
    for pair in PAIRS:
        nearer = typed & pair
        for part, names in written:
            nearer = nearer or names & pair
            for name in names & pair - nearer:
                content: Any = files.edit_file(part.path).config
                folder, _, key = name.removeprefix(f"{part.package}.").rpartition(".")
                node = OmegaConf.select(content, folder) if folder else content
                node.pop(key)


def tuned_files(sources: Sequence[Source]) -> list[str]:
    """Returns the tuned files of agent, family and pair, in order of increasing precedence."""
    return [source.file for source in sources if source.group == TUNED]
