"""Tuned files: the values that an agent, or a pair of agent and env, needs of all groups.

`conf/tuned/<agent>.yaml` has what an algorithm needs from other groups with any env (the replay
ratio 20 of `redq`, the priority exponent of `rainbow`), `conf/tuned/<agent>_<env>.yaml` the best
values for a pair of names; a bare `env.id=…` has no pair. Between them stands the pair with the
env's family: the preset that its own file is based on, as `pong` is on `atari`. Hydra is given the
pair's file as one that builds on those of agent and family; an empty file keeps the place of a
missing pair. If an agent's file is based on another one, the tuned values of that agent apply too,
below its own; pairs of another agent do not. Saved settings have no `tuned`, so tuned values are
never applied to them again.

Values of a group count only with an option like the one that the file was made with:

- Settings that the chosen option lacks but others have are dropped.
- Settings that distinguish the options of a group (`n_steps`) are those of an option that is chosen
  by anything but the agent: the command line, an experiment, or the trainer.
- With `trainer=offline`, the trainer values of a file made with an online trainer are dropped.

`drop_weaker` then sees to it that the limits of a run are those of one place, of whatever kind, and
that of an interval in updates and one in env steps the nearest to the command line counts.
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

# Each of them is sure to end a run; `trainer.stop_at_score` and `trainer.patience` are not.
LIMITS = {"trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s"}
ALL_LIMITS = {*LIMITS, "trainer.stop_at_score", "trainer.patience"}
# Only online trainers use them: a file that sets one was made with such a trainer.
OF_ONLINE_TRAINERS = {"samples_per_opt_step", "warmup_period", "sync_interval"}
# Intervals in updates and in env steps, of which one counts.
PAIRS = [{f"trainer.{name}_interval", f"trainer.{name}_interval_env_steps"} for name in INTERVALS]
BOTH_WAYS = set[str]().union(*PAIRS)


def choose_trainer(files: Files, overrides: Sequence[str]) -> None:
    """Serves the primary configuration with `trainer: sync` where the agent learns from rollouts.

    The file of the agent cannot choose it, because a trainer overrides what agents choose.
    """
    agent = _kinds(files.parts).get("agent")
    primary = files.parts[0] if files.parts else None
    if agent is None or not agent.on_policy or primary is None:
        return
    content: Any = files.edited(files.config_name).config
    for entry in content.get("defaults") or []:
        if isinstance(entry, DictConfig) and "trainer" in entry:
            entry["trainer"] = "sync"
            files.find_parts(overrides, again=True)


def add_tuned(files: Files, typed_groups: Set[str]) -> None:
    """Adds the files of agent and family to the parts of a composition, and has all tuned files
    served as far as they apply. The options of `typed_groups` are chosen on the command line.

    Where `tuned` is switched off, or was never asked for, as in saved settings, there is no place
    for any.
    """
    parts = files.parts
    at = next((n for n, part in enumerate(parts) if part.path.startswith(f"{TUNED}/")), None)
    if at is None:
        return
    first, general, kinds = parts[at], _general_parts(files), _kinds(parts)
    preset = _preset(parts, typed_groups)
    files.parts = [*parts[:at], *general, *parts[at:]]
    for n, part in enumerate(files.parts):
        of_tuned = part.path.startswith(f"{TUNED}/") and not part.package
        if not (of_tuned and isinstance(part.content, DictConfig)):
            continue
        applicable = _applicable(part, kinds, preset)
        files.parts[n] = replace(part, content=applicable)
        content = applicable.copy()
        if part.path == first.path:
            own = content.get("defaults") or []
            content["defaults"] = [*(f"/{each.path}" for each in general), *own]
        files.edited(part.path).config = content


def _general_parts(files: Files) -> list[ConfigFile]:
    """The files of an agent, `tuned/dqn`, and of it with the families of its env, `tuned/dqn_atari`
    for an env that is based on `env/atari`.

    An agent's file brings those of the files that it builds on, its own last.
    """
    agents, envs = _files_of("agent", files.parts), _files_of("env", files.parts)
    parts = []
    for name in [*agents, *(f"{agents[-1]}_{each}" for each in envs[:-1] if agents)]:
        path = f"{TUNED}/{name}"
        found = files.read(path)
        if found is None:
            continue
        if "defaults" in found.config:
            raise ConfigError(f"{path}.yaml: it may only set values: remove its defaults list")
        parts.append(ConfigFile(path, "", file_of(found.path, path), found.config))
    return parts


def _files_of(group: str, parts: Sequence[ConfigFile]) -> list[str]:
    """The files that make up the option of a group, what it is based on first."""
    paths = [part.path for part in parts if part.package == group]
    named = [path.removeprefix(f"{group}/") for path in paths if path.startswith(f"{group}/")]
    return list(dict.fromkeys(named))


def _kinds(parts: Sequence[ConfigFile]) -> dict[str, type[Any]]:
    """The settings of the option that each group has."""
    found = {}
    for part in parts:
        named = part.path.startswith(f"{SCHEMA}/{part.package}/")
        kind = OmegaConf.get_type(schema(part.path)) if named else None
        if kind is not None:
            found[part.package] = kind
    return found


def _preset(parts: Sequence[ConfigFile], typed_groups: Set[str]) -> set[str]:
    """The settings that tuned files do not replace: those of option files that something else than
    an agent's file has chosen."""
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


def _applicable(part: ConfigFile, kinds: Mapping[str, type[Any]], preset: Set[str]) -> DictConfig:
    """The content of a tuned file without `preset` settings, and without those that the option of
    a group lacks; what no option of it has stays to be refused."""
    values: Any = OmegaConf.to_container(part.content, resolve=False)
    for group, kind in kinds.items():
        if isinstance(values.get(group), dict):
            known = {each.name for entry in GROUPS[group] for each in fields(entry.config_type)}
            absent = known - {each.name for each in fields(kind)}
            values[group] = {
                key: value
                for key, value in values[group].items()
                if key not in absent and f"{group}.{key}" not in preset
            }
    trainer = values.get("trainer")
    online = isinstance(trainer, dict) and OF_ONLINE_TRAINERS & trainer.keys()
    if online and kinds.get("trainer", TrainerConfig).offline:
        del values["trainer"]
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def drop_weaker(files: Files, overrides: Sequence[Override]) -> None:
    """Serves files without the limits and intervals that give way to those of a nearer file, or of
    the command line."""
    typed = {
        name
        for each in overrides
        if not (each.is_sweep_override() or each.is_delete())
        for name in settings_in(each.value(), each.key_or_group)
    }
    written = [
        (part, settings_in(part.content, part.package))
        for part in reversed(files.parts)
        if part.file
    ]
    _drop_limits(files, written, typed)
    _drop_intervals(files, written, typed)


# The files that are written, the nearest to the command line first, with what they set.
Written = Sequence[tuple[ConfigFile, set[str]]]


def _drop_limits(files: Files, written: Written, typed: set[str]) -> None:
    """Serves limits as null, so that none cuts off a run before one that was asked for.

    Limits on the command line replace all others; else those of the last file that sets one
    replace those before it. A score or patience alone replaces no limit. The last file that sets a
    limit, or chooses the trainer, sets the others to null.
    """
    kept = typed & ALL_LIMITS
    for _, names in written:
        if not kept & LIMITS:
            kept |= names
    places = [part for part, names in written if part.package == "trainer" or names & ALL_LIMITS]
    if kept & LIMITS and places:
        last = places[0]
        content: Any = files.edited(last.path).config
        for limit in ALL_LIMITS - kept:
            key = limit.removeprefix(f"{last.package}.")
            OmegaConf.update(content, key, None, force_add=True)


def _drop_intervals(files: Files, written: Written, typed: set[str]) -> None:
    """Serves files without an interval where a nearer file, or the command line, sets the other one
    of its pair. Both in one place are left to be refused."""
    for pair in PAIRS:
        nearer = typed & pair
        for part, names in written:
            nearer = nearer or names & pair
            for name in names & pair - nearer:
                content: Any = files.edited(part.path).config
                folder, _, key = name.removeprefix(f"{part.package}.").rpartition(".")
                node = OmegaConf.select(content, folder) if folder else content
                node.pop(key)


def tuned_files(found: Sequence[Source]) -> list[str]:
    """The files of values for agent, family and pair that took part; later ones win."""
    return [source.file for source in found if source.group == TUNED]
