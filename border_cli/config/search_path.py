"""The folders of configuration files: the user's before ours. Never imports Hydra."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path

from border_cli.core.errors import ConfigError

OURS = "border_cli.conf"
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


def opened(url: str) -> Traversable:
    """The folder behind one of Hydra's URLs."""
    scheme, _, place = url.partition("://")
    return importlib.resources.files(place) if scheme == "pkg" else Path(place)
