"""Modules of the user that register components, wherever `imports` is written."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.loader import Loader, YAMLError
from border_cli.config.overrides import parsed
from border_cli.core.errors import ConfigError


class BlankSchemas(ConfigSource):
    """Answers every schema with nothing: before the imports, the user's are not registered."""

    @staticmethod
    def scheme() -> str:
        return "border-blank"

    def load_config(self, config_path: str) -> ConfigResult:
        empty = OmegaConf.create()
        return ConfigResult(self.provider, config_path, empty, header={"package": None})

    def is_group(self, config_path: str) -> bool:  # noqa: ARG002 - the groups are the files'
        return False

    def is_config(self, config_path: str) -> bool:
        return config_path.startswith("schema/")

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:  # noqa: ARG002
        return []


class FirstLook(Loader):
    """Reads which files will be composed, without merging them."""

    def __init__(self, folders: Sequence[str]) -> None:
        Plugins.instance().register(BlankSchemas)
        super().__init__(folders)
        path = self.config_search_path
        path.prepend("blank", f"{BlankSchemas.scheme()}://")
        self.repository.initialize_sources(path)

    def imports(self, config_name: str, overrides: list[str]) -> list[str]:
        """The modules that the files name. A composition that fails is left to the real one."""
        try:
            _, repo = self.read(config_name, overrides)
            chosen = self.compute_defaults_list(config_name, overrides, RunMode.MULTIRUN)
        except (ConfigError, HydraException, OmegaConfBaseException, YAMLError, ValueError):
            return []
        names: list[str] = []
        for default in chosen.defaults:
            if not default.package and default.config_path:
                loaded = repo.load_config(default.config_path)
                names += _names(OmegaConf.select(loaded.config, "imports") if loaded else None)
        return names


def imports_of(folders: Sequence[str], config_name: str, overrides: list[str]) -> list[str]:
    """All modules that the command line and the chosen files name, each once, in order."""
    names: list[str] = []
    if folders or any("searchpath" in each for each in overrides):  # our own files name none
        names += FirstLook(folders).imports(config_name, overrides)
    for override in parsed([each for each in overrides if "imports" in each]):
        if override.key_or_group == "imports" and not override.is_sweep_override():
            names += _names(override.value())
    return list(dict.fromkeys(names))


def _names(value: object) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(each) for each in _iterable(value)]


def _iterable(value: object) -> Iterable[object]:
    return value if isinstance(value, Iterable) else [value]


def import_modules(names: Sequence[str]) -> None:
    """Imports each; a module that is missing or fails refuses the settings that name it."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name + ".").startswith(error.name + "."):
                raise ConfigError(
                    f"imports: there is no module {name!r} in {Path.cwd()} or among the "
                    "installed packages"
                ) from error
            raise ConfigError(f"imports: {name!r} needs {error.name!r}: {_place(error)}") from error
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"imports: {name!r} failed: {_place(error)}") from error


def _place(error: BaseException) -> str:
    """`file:line: Error: message` of where the module itself failed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if "importlib" not in each.filename]
    last = own[-1]
    return f"{last.filename}:{last.lineno}: {type(error).__name__}: {error}"


def add_to_path(folders: Sequence[str]) -> None:
    """Puts folders at the end of sys.path: a console script does not look where it is started."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
