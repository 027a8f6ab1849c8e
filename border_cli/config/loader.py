"""Hydra's composition without Hydra's global state, and the files that took part in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import RLock
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.defaults_list import DefaultsList, update_package_header
from hydra.core.default_element import GroupDefault, ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from hydra.version import VersionBase, _get_version
from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError as YAMLError  # type: ignore[import-untyped]

from border_cli.config.repository import TUNED, Repository, file_of, shown
from border_cli.config.resolvers import register_resolvers
from border_cli.config.search_path import search_path
from border_cli.core.config import TrainerConfig
from border_cli.core.errors import ConfigError
from border_cli.registry import GROUPS

VERSION_BASE = "1.3"
# Each of them ends a run for certain, as `trainer.stop_at_score` does not.
LIMITS = ("trainer.max_opt_steps", "trainer.max_env_steps", "trainer.max_time_s")
PACE = "samples_per_opt_step"

# Hydra keeps its version base and its stores per process; compositions take turns.
_turn = RLock()

setup_globals()
register_resolvers()


@contextmanager
def hydra_turn() -> Iterator[None]:
    """Composes with our version base, alone, and puts back what was set before."""
    with _turn:
        version = VersionBase.instance()
        before = version.version_base
        version.setbase(_get_version(VERSION_BASE))
        try:
            yield
        finally:
            version.version_base = before


@dataclass(frozen=True, slots=True)
class Part:
    """One configuration file that took part, in the order of merging."""

    path: str  # agent/dqn
    package: str  # where it was merged: agent; empty is the top
    file: str | None  # None: a schema, or a pair without a file of its own
    content: Any  # as written, but for what of a tuned file does not apply; not merged or resolved
    of_agent: bool = False  # a tuned file that goes with the agent's name


class Loader(ConfigLoaderImpl):
    """Composes once or several times; `parts` are those of the last composition."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(search_path(folders))
        self.repository = Repository(self.config_search_path)
        self.parts: list[Part] = []
        self._read: tuple[object, tuple[list[Override], CachingConfigRepository]] | None = None

    def read(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        """The overrides as Hydra reads them, and the files that `hydra.searchpath` adds to ours."""
        asked = (config_name, tuple(overrides))
        if self._read is None or self._read[0] != asked:
            read = super()._parse_overrides_and_create_caching_repo(config_name, overrides)
            self._read = (asked, read)
        return self._read[1]

    # Hydra's own name for it: what was read for a check is not read again for the composition.
    _parse_overrides_and_create_caching_repo = read

    def compute_defaults_list(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode
    ) -> DefaultsList:
        """What `--info defaults` shows, and the first look for `imports` reads."""
        found = super().compute_defaults_list(config_name, overrides, run_mode)
        found.defaults = _with_agent_files(found.defaults, self.read(config_name, overrides)[1])
        return found

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Notes the files before they are merged, so that a refusal can name one."""
        assert self._read is not None  # the command line, as it was read for this composition
        defaults = _with_agent_files(defaults, repo)
        self.parts = [_part(each, repo) for each in defaults]
        self.parts = _fitted(self.parts, self._read[1][0])
        return super()._compose_config_from_defaults_list(defaults, repo)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Of a tuned file what applies."""
        loaded = super()._load_single_config(default, repo)
        if not _is_tuned(default.config_path or "") or default.package:
            return loaded
        part = next(each for each in self.parts if each.path == default.config_path)
        return replace(loaded, config=part.content)

    def options(self, group: str) -> list[str]:
        """What a group offers, in all folders."""
        return list(self.repository.get_group_options(group, ObjectType.CONFIG))

    def file(self, path: str) -> str | None:
        """The file of `agent/dqn`, as it is shown; None for a schema."""
        loaded = self.repository.load_config(path)
        found = file_of(loaded.path, path) if loaded else None
        return shown(found) if found else None

    def groups(self) -> list[str]:
        """The groups that a user chooses from."""
        found = self.repository.get_group_options("", ObjectType.GROUP)
        return [each for each in found if each not in ("schema", "hydra")]

    def folders(self) -> list[str]:
        """The folders searched, but for Hydra's own."""
        sources = self.repository.get_sources()
        return [each.path for each in sources if each.provider not in ("hydra", "schema")]


def _part(default: ResultDefault, repo: IConfigRepository) -> Part:
    path = default.config_path or ""
    loaded = repo.load_config(config_path=path)
    assert loaded is not None
    of_agent = _is_tuned(path) and default.parent == _agent_of(path)
    return Part(path, default.package or "", file_of(loaded.path, path), loaded.config, of_agent)


def _is_tuned(path: str) -> bool:
    return path.startswith(f"{TUNED}/")


def _agent_of(path: str) -> str:
    """`agent/redq` of `tuned/redq`."""
    return f"agent/{path.partition('/')[2]}"


def _with_agent_files(
    defaults: list[ResultDefault], repo: IConfigRepository
) -> list[ResultDefault]:
    """The defaults list with `tuned/redq` for `agent/redq`, below the file of the pair.

    An agent's file brings those of the files that it builds on, its own last. Where `tuned` is
    switched off, or was never asked for, as in saved settings, there is no place for any.
    """
    places = [at for at, each in enumerate(defaults) if _is_tuned(each.config_path or "")]
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
            f"{shown(file) if file else path}: it goes with the name of an agent and sets values "
            "only: it must have no defaults list"
        )
    update_package_header(repo, entry)
    return ResultDefault(path, _agent_of(path), entry.get_final_package())


def _fitted(parts: list[Part], overrides: Sequence[Override]) -> list[Part]:
    """The parts, of tuned files what applies: settings that the chosen options have, and no limit
    of the run where a later file or the command line sets one."""
    if not any(_is_tuned(part.path) for part in parts):
        return parts
    kinds = _chosen(parts)
    typed = [each for each in overrides if not (each.is_sweep_override() or each.is_delete())]
    limited = any(_sets_limit(each.key_or_group, each.value()) for each in typed)
    fitted = []
    for part in reversed(parts):
        if _is_tuned(part.path) and not part.package and isinstance(part.content, DictConfig):
            part = replace(part, content=_applicable(part, kinds, limited=limited))
        if part.file and isinstance(part.content, DictConfig):
            values = OmegaConf.to_container(part.content, resolve=False)
            limited = limited or _sets_limit(part.package, values)
        fitted.append(part)
    return fitted[::-1]


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
        if part.of_agent and PACE in trainer and kinds.get("trainer", TrainerConfig).offline:
            del values["trainer"]  # limits and intervals were for that pace
        elif limited:
            off = {key: None for key in trainer if f"trainer.{key}" in LIMITS}
            values["trainer"] = trainer | off
    applicable: DictConfig = OmegaConf.create(values)
    return applicable


def _of_other_options(group: str, kind: type[Any]) -> set[str]:
    """Settings that this option of a group lacks; what none of them has stays to be refused."""
    known = {each.name for entry in GROUPS[group] for each in fields(entry.config_type)}
    return known - {each.name for each in fields(kind)}
