"""Tuned files: the values that an agent, or a pair of agent and env, needs of all groups.

`conf/tuned/<agent>.yaml` has what an algorithm needs from other groups with any env (the replay
ratio 20 of `redq`, the priority exponent of `rainbow`), `conf/tuned/<agent>_<env>.yaml` the best
values for a pair of names; a bare `env.id=…` has no pair. Between them stands the pair with the
env's family: the preset that its own file is based on, as `pong` is on `atari`. Files of agent and
family are inserted into Hydra's defaults list before the pair's; an empty file keeps the place of a
missing pair. If an agent's file is based on another one, the tuned values of that agent apply too,
below its own; pairs of another agent do not. Saved settings have no `tuned`, so tuned values are
never applied to them again.

Only applicable values are used: settings that the chosen option of a group lacks but others have
are dropped. With `trainer=offline`, all trainer values of an agent that sets a replay ratio are
dropped.

The limits of a run are those of one place, of whatever kind: see `drop_weaker_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from hydra._internal.config_repository import IConfigRepository
from hydra._internal.defaults_list import update_package_header
from hydra.core.default_element import GroupDefault, ResultDefault
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from border_cli.config.sources import TUNED, file_of, shown
from border_cli.core.config import TrainerConfig
from border_cli.core.errors import ConfigError
from border_cli.core.settings import flat
from border_cli.registry import GROUPS

if TYPE_CHECKING:
    from border_cli.config.compose import Source

# Each of them is sure to end a run; `trainer.stop_at_score` is not.
LIMITS = ("trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s")
ALL_LIMITS = (*LIMITS, "trainer.stop_at_score")
SAMPLES_PER_OPT_STEP = "samples_per_opt_step"


@dataclass(frozen=True, slots=True)
class Part:
    """One configuration file that took part, in the order of merging."""

    path: str  # agent/dqn
    package: str  # where it was merged: agent; empty is the top
    file: str | None  # None: a schema, or a pair without a file of its own
    content: Any  # as written, less what does not apply of a tuned file; not merged or resolved
    general: bool = False  # a tuned file of the agent, or of a family of envs, not of a pair


def is_tuned(path: str) -> bool:
    return path.startswith(f"{TUNED}/")


def part_of(default: ResultDefault, repo: IConfigRepository) -> Part:
    path = default.config_path or ""
    loaded = repo.load_config(config_path=path)
    assert loaded is not None
    general = is_tuned(path) and (default.parent or "").startswith(("agent/", "env/"))
    return Part(path, default.package or "", file_of(loaded.path, path), loaded.config, general)


def with_general_files(
    defaults: list[ResultDefault], repo: IConfigRepository
) -> list[ResultDefault]:
    """The defaults list with `tuned/dqn` for `agent/dqn`, and `tuned/dqn_atari` for an env that is
    based on `env/atari`, below the file of the pair.

    An agent's file brings those of the files that it builds on, its own last. Where `tuned` is
    switched off, or was never asked for, as in saved settings, there is no place for any.
    """
    places = [at for at, each in enumerate(defaults) if is_tuned(each.config_path or "")]
    if not places:
        return defaults
    agents, envs = _files_of("agent", defaults), _files_of("env", defaults)
    files = [_general_file(agent, f"agent/{agent}", repo) for agent in agents]
    families = envs[:-1] if agents else []
    files += [_general_file(f"{agents[-1]}_{each}", f"env/{each}", repo) for each in families]
    return [*defaults[: places[0]], *filter(None, files), *defaults[places[0] :]]


def _files_of(group: str, defaults: list[ResultDefault]) -> list[str]:
    """The files that make up the option of a group, what it is based on first."""
    paths = [each.config_path or "" for each in defaults if each.package == group]
    named = [path.removeprefix(f"{group}/") for path in paths if path.startswith(f"{group}/")]
    return list(dict.fromkeys(named))


def _general_file(name: str, of: str, repo: IConfigRepository) -> ResultDefault | None:
    entry = GroupDefault(group=TUNED, value=name)
    entry.update_parent("", "")
    path = entry.get_config_path()
    if not repo.config_exists(path):
        return None
    loaded = repo.load_config(path)
    assert loaded is not None
    if loaded.defaults_list:
        file = file_of(loaded.path, path)
        raise ConfigError(f"{shown(str(file))}: it may only set values: remove its defaults list")
    update_package_header(repo, entry)
    return ResultDefault(path, of, entry.get_final_package())


def fitted(parts: list[Part]) -> list[Part]:
    """The parts, reduced to what applies of tuned files: settings that the chosen options have."""
    kinds = _chosen(parts)
    return [
        replace(part, content=_applicable(part, kinds))
        if is_tuned(part.path) and not part.package and isinstance(part.content, DictConfig)
        else part
        for part in parts
    ]


def drop_weaker_limits(
    config: DictConfig, parts: Sequence[Part], overrides: Sequence[Override]
) -> None:
    """Sets limits in `config` to null, so that none cuts off a run before one that was asked for.

    Limits on the command line, which are applied to `config` later, replace all others; else those
    of the last file that sets one replace those before it. A score alone replaces no limit.
    """
    typed = [each for each in overrides if not (each.is_sweep_override() or each.is_delete())]
    kept: set[str] = set()
    if not any(_limits_in(each.value(), each.key_or_group) & {*LIMITS} for each in typed):
        for part in (each for each in reversed(parts) if each.file):
            kept |= _limits_in(part.content, part.package)
            if kept & {*LIMITS}:
                break
        else:
            return
    for limit in ALL_LIMITS:
        if limit not in kept and OmegaConf.select(config, limit) is not None:
            OmegaConf.update(config, limit, None)


def _chosen(parts: Sequence[Part]) -> dict[str, type[Any]]:
    """The settings of the option that each group has."""
    kinds = {}
    for part in parts:
        schema, group, name = (*part.path.split("/", 2), "", "")[:3]
        if schema == "schema" and group in GROUPS and part.package == group:
            kinds[group] = GROUPS[group].entry(name).config_type
    return kinds


def _limits_in(value: object, path: str) -> set[str]:
    """The limits that a file, or what is typed for a path, sets."""
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value, resolve=False)
    return {
        key for key, each in flat(value, path).items() if key in ALL_LIMITS and each is not None
    }


def _applicable(part: Part, kinds: Mapping[str, type[Any]]) -> DictConfig:
    values: Any = OmegaConf.to_container(part.content, resolve=False)
    for group, kind in kinds.items():
        if isinstance(values.get(group), dict):
            absent = _of_other_options(group, kind)
            values[group] = {key: each for key, each in values[group].items() if key not in absent}
    trainer = values.get("trainer")
    if (
        part.general
        and isinstance(trainer, dict)
        and SAMPLES_PER_OPT_STEP in trainer
        and kinds.get("trainer", TrainerConfig).offline
    ):
        del values["trainer"]  # limits and intervals were for that replay ratio
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def _of_other_options(group: str, kind: type[Any]) -> set[str]:
    """Settings that this option of a group lacks; what none of them has stays to be refused."""
    known = {each.name for entry in GROUPS[group] for each in fields(entry.config_type)}
    return known - {each.name for each in fields(kind)}


def tuned_files(found: Sequence[Source]) -> list[str]:
    """The files of values for agent, family and pair that took part; later ones win."""
    return [source.file for source in found if source.group == TUNED]
