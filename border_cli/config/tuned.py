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

The limits of a run are those of one place, of whatever kind: see `drop_weaker_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from typing import Any

from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from border_cli.config.job import Source
from border_cli.config.schemas import names_schema, parts_of
from border_cli.config.sources import TUNED, ConfigFile, Files, chosen_options, settings_in
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.settings.run import TrainerConfig
from border_cli.words import shortest

# Each of them is sure to end a run; `trainer.stop_at_score` and `trainer.patience` are not.
LIMITS = ("trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s")
ALL_LIMITS = (*LIMITS, "trainer.stop_at_score", "trainer.patience")
# Only online trainers use them: a file that sets one was made with such a trainer.
OF_ONLINE_TRAINERS = {"samples_per_opt_step", "warmup_period", "sync_interval"}


def is_tuned(path: str) -> bool:
    return path.startswith(f"{TUNED}/")


def add_tuned(files: Files, typed_groups: Set[str]) -> None:
    """Adds the files of agent and family to the parts of a composition, and has all tuned files
    served as far as they apply. The options of `typed_groups` are chosen on the command line.

    Where `tuned` is switched off, or was never asked for, as in saved settings, there is no place
    for any.
    """
    places = [at for at, part in enumerate(files.parts) if is_tuned(part.path)]
    if not places:
        return
    first = files.parts[places[0]]
    general = _general_parts(files)
    chosen = _chosen(files.parts)
    files.parts = [
        replace(part, content=_applicable(part, chosen, _preset(part, files.parts, typed_groups)))
        if _has_values(part)
        else part
        for part in [*files.parts[: places[0]], *general, *files.parts[places[0] :]]
    ]
    for part in files.parts:
        if _has_values(part):
            content = part.content.copy()
            if part.path == first.path:
                own = content.get("defaults") or []
                content["defaults"] = [*(f"/{each.path}" for each in general), *own]
            files.copied(part.path).config = content


def _has_values(part: ConfigFile) -> bool:
    return is_tuned(part.path) and not part.package and isinstance(part.content, DictConfig)


def _general_parts(files: Files) -> list[ConfigFile]:
    """The files of an agent, `tuned/dqn`, and of it with the families of its env, `tuned/dqn_atari`
    for an env that is based on `env/atari`.

    An agent's file brings those of the files that it builds on, its own last.
    """
    agents, envs = _files_of("agent", files.parts), _files_of("env", files.parts)
    names = [*agents, *(f"{agents[-1]}_{each}" for each in envs[:-1] if agents)]
    found = [(f"{TUNED}/{name}", files.read(f"{TUNED}/{name}")) for name in names]
    return [_general_part(path, each, files) for path, each in found if each is not None]


def _general_part(path: str, found: ConfigResult, files: Files) -> ConfigFile:
    file = files.file(path)
    assert file is not None
    if isinstance(found.config, DictConfig) and found.config.get("defaults"):
        raise ConfigError(f"{shortest(file)}: it may only set values: remove its defaults list")
    package = found.header["package"]
    package = TUNED if package is None else package.removeprefix("_global_").removeprefix(".")
    return ConfigFile(path, package, file, found.config, general=True)


def _files_of(group: str, parts: Sequence[ConfigFile]) -> list[str]:
    """The files that make up the option of a group, what it is based on first."""
    paths = [part.path for part in parts if part.package == group]
    named = [path.removeprefix(f"{group}/") for path in paths if path.startswith(f"{group}/")]
    return list(dict.fromkeys(named))


def drop_weaker_limits(files: Files, typed: set[str]) -> None:
    """Serves limits as null, so that none cuts off a run before one that was asked for.

    Limits on the command line replace all others; else those of the last file that sets one
    replace those before it. A score or patience alone replaces no limit.
    """
    kept = typed & {*ALL_LIMITS}
    for part in (each for each in reversed(files.parts) if each.file):
        if kept & {*LIMITS}:
            break
        kept |= settings_in(part.content, part.package)
    if kept & {*LIMITS}:
        kind = _chosen(files.parts).get("trainer", TrainerConfig)
        known = {f"trainer.{each.name}" for each in fields(kind)}
        _serve_null(files, [each for each in ALL_LIMITS if each in known - kept])


def _serve_null(files: Files, limits: Sequence[str]) -> None:
    """Has the last file that sets a limit, or chooses the trainer, set these to null."""
    places = [
        part
        for part in files.parts
        if part.file
        and (part.package == "trainer" or settings_in(part.content, part.package) & {*ALL_LIMITS})
    ]
    if places:
        last = places[-1]
        content: Any = files.copied(last.path).config
        for limit in limits:
            key = limit.removeprefix(f"{last.package}.") if last.package else limit
            OmegaConf.update(content, key, None, force_add=True)


def _chosen(parts: Sequence[ConfigFile]) -> dict[str, type[Any]]:
    """The settings of the option that each group has."""
    kinds = {}
    for part in parts:
        _, group, name = parts_of(part.path)
        if group and part.package == group and names_schema(part.path):
            kinds[group] = GROUPS[group].entry(name).config_type
    return kinds


def _preset(tuned: ConfigFile, parts: Sequence[ConfigFile], typed_groups: Set[str]) -> set[str]:
    """The settings that a tuned file does not replace: those of option files that something else
    than its own agent has chosen."""
    agents = _files_of("agent", parts)
    name = tuned.path.removeprefix(f"{TUNED}/")
    named = [number for number, agent in enumerate(agents) if f"{name}_".startswith(f"{agent}_")]
    own = {f"agent/{agent}" for agent in agents[: named[-1] + 1]} if named else set()
    groups = set(typed_groups)
    for part in parts:
        if part.path not in own:
            groups |= {group for group, _ in chosen_options(part.path, part.content)}
    return {
        setting
        for part in parts
        if part.file and part.package in groups and part.path.startswith(f"{part.package}/")
        for setting in settings_in(part.content, part.package)
    }


def _applicable(part: ConfigFile, chosen: Mapping[str, type[Any]], preset: Set[str]) -> DictConfig:
    values: Any = OmegaConf.to_container(part.content, resolve=False)
    for group, kind in chosen.items():
        if isinstance(values.get(group), dict):
            absent = _of_other_options(group, kind)
            values[group] = {
                key: value
                for key, value in values[group].items()
                if key not in absent and f"{group}.{key}" not in preset
            }
    trainer = values.get("trainer")
    if (
        isinstance(trainer, dict)
        and OF_ONLINE_TRAINERS & trainer.keys()
        and chosen.get("trainer", TrainerConfig).offline
    ):
        del values["trainer"]
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def _of_other_options(group: str, kind: type[Any]) -> set[str]:
    """Settings that this option of a group lacks; what none of them has stays to be refused."""
    known = {each.name for entry in GROUPS[group] for each in fields(entry.config_type)}
    return known - {each.name for each in fields(kind)}


def tuned_files(found: Sequence[Source]) -> list[str]:
    """The files of values for agent, family and pair that took part; later ones win."""
    return [source.file for source in found if source.group == TUNED]
