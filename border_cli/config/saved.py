"""A run's own saved settings as the first configuration of the command that resumes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf

from border_cli.config.compose import Composer
from border_cli.config.frozen import FILE
from border_cli.config.overrides import parsed
from border_cli.config.repository import SAVED_SCHEME
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.registry import GROUPS


class SavedSettings(ConfigSource):
    """The folder `.hydra` of a run: `border-saved://FOLDER?group,group`.

    In it `resolved` chooses the groups named behind the question mark anew, by whatever the command
    line says, and knows nothing of their saved values. Everything else is as it was saved.
    """

    def __init__(self, provider: str, path: str) -> None:
        folder, _, groups = path.rpartition("?")
        super().__init__(provider, folder)
        self._groups = [each for each in groups.split(",") if each]

    @staticmethod
    def scheme() -> str:
        return SAVED_SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(self.path) / self._normalize_file_name(config_path)
        content = OmegaConf.load(file)
        if not isinstance(content, DictConfig) or not isinstance(
            content.get("defaults"), ListConfig
        ):
            raise ConfigError(f"{file} is no saved configuration: it has no defaults list")
        for group in self._groups:
            _choose_anew(content, group)
        content["run_dir"] = str(file.parent.parent)
        return ConfigResult(self.provider, self.full_path(), content, header={"package": None})

    def is_group(self, config_path: str) -> bool:
        return config_path == ""

    def is_config(self, config_path: str) -> bool:
        return self._normalize_file_name(config_path) == FILE.name

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:  # noqa: ARG002
        return []  # nobody chooses it by name


def _choose_anew(content: DictConfig, group: str) -> None:
    """`???` demands a choice, which the command line makes."""
    entries = OmegaConf.to_container(content["defaults"])
    assert isinstance(entries, list)
    own = [each for each in entries if str(each).startswith(f"/schema/{group}/")]
    place = entries.index(own[0]) if own else len(entries) - 1  # before _self_
    rest: list[Any] = [each for each in entries if each not in own]
    rest.insert(place, {group: "???"})
    content["defaults"] = rest
    content.pop(group, None)


def saved_composer(run_dir: Path, overrides: Sequence[str], folders: Sequence[str]) -> Composer:
    """Composes from what `run_dir` has saved; `folders` serve the groups that `overrides` name."""
    Plugins.instance().register(SavedSettings)
    groups = ",".join(_chosen(overrides))
    own = f"{SAVED_SCHEME}://{(run_dir / FILE).parent}?{groups}"
    return Composer([own, *folders], FILE.stem, run_dir=run_dir)


def saved_settings(run_dir: Path, composer: Composer) -> RunConfig:
    """The settings of a run as they were saved, completed by the defaults of today."""
    folders = [each for each in composer.folders if not each.startswith(f"{SAVED_SCHEME}:")]
    return saved_composer(run_dir, [], folders).job([]).config


def _chosen(overrides: Sequence[str]) -> list[str]:
    """The groups that a choice is typed of; one that is added to a list chooses nothing anew."""
    chosen = [
        each.key_or_group
        for each in parsed(overrides)
        if each.key_or_group in GROUPS
        and not (each.is_delete() or each.is_add() or each.is_sweep_override())
        and not isinstance(each.value(), dict)
    ]
    return list(dict.fromkeys(chosen))
