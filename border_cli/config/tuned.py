"""Tuned files: the values that an agent, or a pair of agent and env, needs of all groups.

`conf/tuned/<agent>.yaml` has what an algorithm needs from other groups with any env (the replay
ratio 20 of `redq`, the priority exponent of `rainbow`), `conf/tuned/<agent>_<env>.yaml` the best
values for a pair of names; a bare `env.id=…` has no pair. The agent's file is inserted into Hydra's
defaults list before the pair's; an empty file keeps the place of a missing pair. If an agent's file
is based on another one, the tuned values of that agent apply too, below its own; pairs are not
inherited. Saved settings have no `tuned`, so tuned values are never applied to them again.

Only applicable values are used: settings that the chosen option of a group lacks but others have
are dropped, and so are the limits of a run if a later file or the command line sets one. With
`trainer=offline`, all trainer values of an agent that sets a replay ratio are dropped.
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
from border_cli.registry import ENVS, GROUPS

if TYPE_CHECKING:
    from border_cli.config.compose import Source

# Each of them is sure to end a run; `trainer.stop_at_score` is not.
LIMITS = ("trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s")
SAMPLES_PER_OPT_STEP = "samples_per_opt_step"


@dataclass(frozen=True, slots=True)
class Part:
    """One configuration file that took part, in the order of merging."""

    path: str  # agent/dqn
    package: str  # where it was merged: agent; empty is the top
    file: str | None  # None: a schema, or a pair without a file of its own
    content: Any  # as written, less what does not apply of a tuned file; not merged or resolved
    of_agent: bool = False  # a tuned file that goes with the agent's name


def is_tuned(path: str) -> bool:
    return path.startswith(f"{TUNED}/")


def _agent_of(path: str) -> str:
    """`agent/redq` of `tuned/redq`."""
    return f"agent/{path.partition('/')[2]}"


def part_of(default: ResultDefault, repo: IConfigRepository) -> Part:
    path = default.config_path or ""
    loaded = repo.load_config(config_path=path)
    assert loaded is not None
    of_agent = is_tuned(path) and default.parent == _agent_of(path)
    return Part(path, default.package or "", file_of(loaded.path, path), loaded.config, of_agent)


def with_agent_files(defaults: list[ResultDefault], repo: IConfigRepository) -> list[ResultDefault]:
    """The defaults list with `tuned/redq` for `agent/redq`, below the file of the pair.

    An agent's file brings those of the files that it builds on, its own last. Where `tuned` is
    switched off, or was never asked for, as in saved settings, there is no place for any.
    """
    places = [at for at, each in enumerate(defaults) if is_tuned(each.config_path or "")]
    if not places:
        return defaults
    agents = [each.config_path for each in defaults if each.package == "agent"]
    named = [path for path in agents if path and path.startswith("agent/")]
    files = [_agent_file(path.partition("/")[2], repo) for path in dict.fromkeys(named)]
    return [*defaults[: places[0]], *filter(None, files), *defaults[places[0] :]]


def _agent_file(name: str, repo: IConfigRepository) -> ResultDefault | None:
    entry = GroupDefault(group=TUNED, value=name)
    entry.update_parent("", "")
    path = entry.get_config_path()
    if not repo.config_exists(path):
        return None
    loaded = repo.load_config(path)
    assert loaded is not None
    if loaded.defaults_list:
        file = file_of(loaded.path, path)
        raise ConfigError(
            f"{shown(file) if file else path}: it belongs to an agent and may only set values: "
            "remove its defaults list"
        )
    update_package_header(repo, entry)
    return ResultDefault(path, _agent_of(path), entry.get_final_package())


def fitted(parts: list[Part], overrides: Sequence[Override]) -> list[Part]:
    """The parts, reduced to what applies of tuned files: settings that the chosen options have, and
    no limit of the run where a later file or the command line sets one."""
    if not any(is_tuned(part.path) for part in parts):
        return parts
    kinds = _chosen(parts)
    typed = [each for each in overrides if not (each.is_sweep_override() or each.is_delete())]
    limited = any(_sets_limit(each.key_or_group, each.value()) for each in typed)
    found = []
    for part in reversed(parts):
        if is_tuned(part.path) and not part.package and isinstance(part.content, DictConfig):
            part = replace(part, content=_applicable(part, kinds, limited=limited))
        if part.file and isinstance(part.content, DictConfig):
            values = OmegaConf.to_container(part.content, resolve=False)
            limited = limited or _sets_limit(part.package, values)
        found.append(part)
    return found[::-1]


def _chosen(parts: Sequence[Part]) -> dict[str, type[Any]]:
    """The settings of the option that each group has."""
    kinds = {}
    for part in parts:
        schema, group, name = (*part.path.split("/", 2), "", "")[:3]
        if schema == "schema" and group in GROUPS and part.package == group:
            kinds[group] = GROUPS[group].entry(name).config_type
    return kinds


def _sets_limit(path: str, value: object) -> bool:
    if isinstance(value, dict):
        return any(_sets_limit(f"{path}.{key}".lstrip("."), each) for key, each in value.items())
    return path in LIMITS and value is not None


def _applicable(part: Part, kinds: Mapping[str, type[Any]], *, limited: bool) -> DictConfig:
    values: Any = OmegaConf.to_container(part.content, resolve=False)
    for group, kind in kinds.items():
        if isinstance(values.get(group), dict):
            absent = _of_other_options(group, kind)
            values[group] = {key: each for key, each in values[group].items() if key not in absent}
    trainer = values.get("trainer")
    if isinstance(trainer, dict):
        if (
            part.of_agent
            and SAMPLES_PER_OPT_STEP in trainer
            and kinds.get("trainer", TrainerConfig).offline
        ):
            del values["trainer"]  # limits and intervals were for that replay ratio
        elif limited:
            off = {key: None for key in trainer if f"trainer.{key}" in LIMITS}
            values["trainer"] = trainer | off
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def _of_other_options(group: str, kind: type[Any]) -> set[str]:
    """Settings that this option of a group lacks; what none of them has stays to be refused."""
    known = {each.name for entry in GROUPS[group] for each in fields(entry.config_type)}
    return known - {each.name for each in fields(kind)}


def tuned_files(found: Sequence[Source]) -> list[str]:
    """The files of values for the agent and for the pair that took part; later ones win."""
    return [source.file for source in found if source.group == TUNED]


def values_of_another_pair(found: Sequence[Source]) -> list[str]:
    """The tuned pairs that took part although another agent or env is chosen.

    Without a preset (`env.id=…`) there is no pair to compare with.
    """
    chosen = {each.group: each.choice for each in found}
    if chosen.get("env") in ENVS.names():
        return []
    pair = f"{chosen.get('agent')}_{chosen.get('env')}"
    tuned = [each.choice for each in found if each.group == TUNED and not each.of_agent]
    return [each for each in tuned if each != pair]
