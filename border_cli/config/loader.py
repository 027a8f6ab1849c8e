"""Hydra's composition without Hydra's global state, and the files that took part in it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.utils import setup_globals
from hydra.version import VersionBase, _get_version
from omegaconf import DictConfig
from yaml import YAMLError as YAMLError  # type: ignore[import-untyped]

from border_cli.config.kinds import nearest
from border_cli.config.resolvers import register_resolvers
from border_cli.config.search_path import search_path
from border_cli.core.errors import ConfigError

VERSION_BASE = "1.3"

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
    file: str | None  # None: a schema
    content: Any  # as written; not merged, not resolved


class Loader(ConfigLoaderImpl):
    """Composes once or several times; `parts` are those of the last composition."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(search_path(folders))
        self.parts: list[Part] = []

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Notes the files before they are merged, so that a refusal can name one."""
        self.parts = [_part(each, repo) for each in defaults]
        for each in defaults:
            if not (each.config_path or "").startswith("hydra/"):
                _check_groups(each, repo)
        return super()._compose_config_from_defaults_list(defaults, repo)

    def options(self, group: str) -> list[str]:
        """What a group offers, in all folders."""
        return list(self.repository.get_group_options(group, ObjectType.CONFIG))

    def file(self, path: str) -> str | None:
        """The file of `agent/dqn`, as it is shown; None for a schema."""
        loaded = self.repository.load_config(path)
        found = _file(loaded.path, path) if loaded else None
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
    return Part(path, default.package or "", _file(loaded.path, path), loaded.config)


def _file(source: str, path: str) -> str | None:
    scheme, _, folder = source.partition("://")
    if scheme == "file":
        return f"{folder}/{path}.yaml"
    if scheme == "pkg":
        return str(importlib.resources.files(folder).joinpath(f"{path}.yaml"))
    return None


def shown(file: str) -> str:
    """Relative to the current folder where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _check_groups(default: ResultDefault, repo: IConfigRepository) -> None:
    """Refuses a group that no folder has: Hydra lets one pass that is optional or null."""
    path = default.config_path or ""
    loaded = repo.load_config(config_path=path)
    for each in (loaded.defaults_list if loaded else None) or []:
        group = getattr(each, "group", None)
        if group is None or each.is_override():
            continue
        absolute = group.lstrip("/") if group.startswith("/") else _beside(path, group)
        if not repo.group_exists(absolute):
            known = repo.get_group_options("", ObjectType.GROUP)
            raise ConfigError(
                f"{_file(loaded.path, path) if loaded else path}: there is no group "
                f"{absolute!r}{nearest(absolute, known)}"
            )


def _beside(path: str, group: str) -> str:
    folder, _, _ = path.rpartition("/")
    return f"{folder}/{group}" if folder else group
