"""Hydra's composition without Hydra's global state, and the files that took part in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.defaults_list import DefaultsList
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from hydra.version import VersionBase, _get_version
from omegaconf import DictConfig
from yaml import YAMLError as YAMLError  # type: ignore[import-untyped]

from border_cli.config.interpolation import register_resolvers
from border_cli.config.search_path import OURS
from border_cli.config.sources import Repository, Schemas, file_of, shown
from border_cli.config.tuned import Part, fitted, is_tuned, part_of, with_agent_files

VERSION_BASE = "1.3"
SETTINGS = "hydra_settings"  # ours of Hydra itself; every primary configuration has them

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


def _search_path(folders: Sequence[str]) -> ConfigSearchPath:
    """Hydra's own settings, the user's folders, ours, then those of Hydra's plug-ins."""
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("main", f"pkg://{OURS}")
    for folder in folders:
        path.prepend("user", folder, anchor="main")
    for plugin in Plugins.instance().discover(SearchPathPlugin):
        if issubclass(plugin, SearchPathPlugin):
            plugin().manipulate_search_path(path)
    Plugins.instance().register(Schemas)
    path.append("schema", f"{Schemas.scheme()}://")
    path.append("schema", "structured://")  # Hydra expects it at the end
    return path


class Loader(ConfigLoaderImpl):
    """Composes once or several times; `parts` are those of the last composition."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(_search_path(folders))
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
        found.defaults = with_agent_files(found.defaults, self.read(config_name, overrides)[1])
        return found

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Notes the files before they are merged, so that a refusal can name one."""
        assert self._read is not None  # the command line, as it was read for this composition
        defaults = with_agent_files(defaults, repo)
        self.parts = [part_of(each, repo) for each in defaults]
        self.parts = fitted(self.parts, self._read[1][0])
        return super()._compose_config_from_defaults_list(defaults, repo)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Of a tuned file what applies."""
        loaded = super()._load_single_config(default, repo)
        if not is_tuned(default.config_path or "") or default.package:
            return loaded
        part = next(each for each in self.parts if each.path == default.config_path)
        return replace(loaded, config=part.content)

    def options(self, group: str) -> list[str]:
        """What a group offers, in all folders."""
        return list(self.repository.get_group_options(group, ObjectType.CONFIG))

    def primary_configs(self) -> list[str]:
        """What a command may begin with."""
        return [each for each in self.options("") if each != SETTINGS and not each.startswith("_")]

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
