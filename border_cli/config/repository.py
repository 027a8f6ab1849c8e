"""Hydra's files, with defaults lists in which every word means something."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from hydra._internal.config_repository import ConfigRepository
from hydra.core.default_element import InputDefault
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, ListConfig

from border_cli.config.kinds import nearest
from border_cli.core.errors import ConfigError

KEYWORDS = ("optional", "override")
SAVED_SCHEME = "border-saved"  # of the settings of a run that is resumed


class Repository(ConfigRepository):
    """Refuses what Hydra passes over in a defaults list: unknown keywords, and groups that no
    folder has where the entry is optional or null."""

    def _create_defaults_list(self, config_path: str, defaults: ListConfig) -> list[InputDefault]:
        if not config_path.startswith("hydra/"):
            for entry in defaults._iter_ex(resolve=False):
                if isinstance(entry, DictConfig) and len(entry) == 1:
                    self._check(config_path, str(next(iter(entry.keys()))))
        return super()._create_defaults_list(config_path, defaults)

    def _check(self, config_path: str, key: str) -> None:
        *keywords, group = key.partition("@")[0].split()
        for word in keywords:
            if word not in KEYWORDS:
                raise ConfigError(
                    f"{self._shown(config_path)}: {word!r} in `{key}: …` means nothing"
                    f"{nearest(word, KEYWORDS)}"
                )
        absolute = _absolute(config_path, group)
        if "override" not in keywords and not self.group_exists(absolute):
            known = self.get_group_options("", ObjectType.GROUP)
            raise ConfigError(
                f"{self._shown(config_path)}: there is no group {absolute!r}"
                f"{nearest(absolute, known)}"
            )

    def _shown(self, config_path: str) -> str:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        file = file_of(source.full_path(), config_path) if source else None
        return shown(file) if file else config_path


def _absolute(config_path: str, group: str) -> str:
    folder = config_path.rpartition("/")[0]
    return group[1:] if group.startswith("/") else f"{folder}/{group}".lstrip("/")


def file_of(source: str, path: str) -> str | None:
    """The file of `agent/dqn` in `file://FOLDER` or `pkg://package`; None for a schema."""
    scheme, _, folder = source.partition("://")
    if scheme in ("file", SAVED_SCHEME):
        return f"{folder}/{path}.yaml"
    if scheme == "pkg":
        return str(importlib.resources.files(folder).joinpath(f"{path}.yaml"))
    return None


def shown(file: str) -> str:
    """Relative to the current folder where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
