"""Hydra's files, with defaults lists in which every word means something."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.default_element import InputDefault
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig, OmegaConf

from border_cli.core.errors import ConfigError
from border_cli.core.words import unknown

KEYWORDS = ("optional", "override")
TUNED = "tuned"  # the group of the values that agents, and pairs of agent and env, need
SAVED_SCHEME = "border-saved"  # of the settings of a run that is resumed


class Repository(ConfigRepository):
    """Refuses what Hydra passes over in a defaults list: unknown keywords, groups that no folder
    has where the entry is optional or null, and tuned files that are named and not there."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A pair without a tuned file has an empty one, so that its place among the defaults is
        known: files that go with the agent's name stand there, too."""
        found = super().load_config(config_path)
        if found is None and config_path.startswith(f"{TUNED}/"):
            header: dict[str, str | None] = {"package": "_global_"}
            return ConfigResult("border_cli", config_path, OmegaConf.create(), header)
        return found

    def _create_defaults_list(self, config_path: str, defaults: ListConfig) -> list[InputDefault]:
        if not config_path.startswith("hydra/"):
            for entry in defaults._iter_ex(resolve=False):
                if isinstance(entry, DictConfig) and len(entry) == 1:
                    key = next(iter(entry.keys()))
                    self._check(config_path, str(key), entry._get_node(key))
        return super()._create_defaults_list(config_path, defaults)

    def _check(self, config_path: str, key: str, node: Any) -> None:
        *keywords, group = key.partition("@")[0].split()
        for word in keywords:
            if word not in KEYWORDS:
                raise ConfigError(
                    f"{self._shown(config_path)}: `{key}: …`: {unknown('keyword', word, KEYWORDS)}"
                )
        absolute = _absolute(config_path, group)
        if "override" not in keywords and not self.group_exists(absolute):
            known = self.get_group_options("", ObjectType.GROUP)
            raise ConfigError(f"{self._shown(config_path)}: {unknown('group', absolute, known)}")
        value = node._value()
        named = isinstance(value, str) and "${" not in value and "optional" not in keywords
        if absolute == TUNED and named and not self.config_exists(f"{TUNED}/{value}"):
            known = self.get_group_options(TUNED, ObjectType.CONFIG)
            raise ConfigError(f"{self._shown(config_path)}: {unknown(TUNED, value, known)}")

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
