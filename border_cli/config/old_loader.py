"""Hydra's loader for its sweepers and launchers, until they are given folders: goes with
`sweep_loader.py`, `cli/hydra_app.py` and `cli/task.py`."""

# ruff: noqa: ARG002 - the names are those of Hydra

from __future__ import annotations

from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from border_cli.config.compose import Composer
from border_cli.config.composition import as_typed


class Loader(ConfigLoader):
    """Composes by a Composer."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        return self._composer.composition(overrides, run_mode).config

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        overrides = [*as_typed(master_config.hydra.overrides.hydra), *sweep_overrides]
        config = self._composer.composition(overrides).config
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def get_search_path(self) -> ConfigSearchPath:
        with self._composer.opened() as files:
            return files.loader.get_search_path()

    def get_sources(self) -> list[ConfigSource]:
        with self._composer.opened() as files:
            return list(files.loader.get_sources())

    def list_groups(self, parent_name: str) -> list[str]:
        with self._composer.opened() as files:
            return list(files.loader.list_groups(parent_name))

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        return self._composer.options(group_name)

    def compute_defaults_list(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode
    ) -> Any:
        with self._composer.opened() as files:
            return files.loader.compute_defaults_list(config_name, overrides, run_mode)
