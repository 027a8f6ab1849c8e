"""The folders that configuration files are looked for in: the user's before ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from border_cli.config.schemas import Schemas
from border_cli.core.errors import ConfigError

OURS = "pkg://border_cli.conf"
ENVIRONMENT_VARIABLE = "BORDER_CONFIG_PATH"
ENTRY_POINT_GROUP = "border_cli.plugins"


def user_folders(config_dirs: Sequence[str] = ()) -> list[str]:
    """`--config-dir`, $BORDER_CONFIG_PATH and installed plug-ins, first wins, as Hydra's URLs."""
    named = [(folder, "--config-dir") for folder in config_dirs]
    variable = os.environ.get(ENVIRONMENT_VARIABLE, "")
    named += [(each, f"${ENVIRONMENT_VARIABLE}") for each in variable.split(os.pathsep) if each]
    return [_url(folder, origin) for folder, origin in named] + _plugin_folders()


def _url(folder: str, origin: str) -> str:
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise ConfigError(f"{origin}: no such directory: {path}")
    return f"file://{path}"


def _plugin_folders() -> list[str]:
    """Calls every installed plug-in, which registers its components and may name a folder."""
    folders = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            folder = entry.load()()
        except Exception as error:
            raise ConfigError(
                f"the plug-in {entry.name!r} ({entry.value}) failed: "
                f"{type(error).__name__}: {error}"
            ) from error
        if folder is not None:
            folders.append(folder if "://" in folder else _url(folder, entry.value))
    return folders


def search_path(folders: Sequence[str]) -> ConfigSearchPath:
    """Hydra's own settings, the user's folders, ours, then those of Hydra's plug-ins."""
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("main", OURS)
    for folder in folders:
        path.prepend("user", folder, anchor="main")
    for plugin in Plugins.instance().discover(SearchPathPlugin):
        if issubclass(plugin, SearchPathPlugin):
            plugin().manipulate_search_path(path)
    path.append("schema", f"{Schemas.scheme()}://")
    path.append("schema", "structured://")  # Hydra expects it at the end
    return path
