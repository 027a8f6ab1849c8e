"""The search for a user's own config files, plug-ins and modules. Never imports Hydra.

User folders take precedence over ours. ./conf is read only if it is named. Modules in `imports`
register components.
"""

from __future__ import annotations

import importlib
import importlib.resources
import os
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from importlib.resources.abc import Traversable
from pathlib import Path

from border_cli.errors import ConfigError, place_of
from border_cli.system.files import expand_user, read_bytes_or_empty
from border_cli.system.foreign import PLUGINS, find_mark, is_installed, refuse_standard

OURS = "border_cli.conf"
ENVIRONMENT_VARIABLE = "BORDER_CONFIG_PATH"
PROJECT = "pyproject.toml"
# False during shell completion, which must not run code from the current directory.
uses_plugins_here = ContextVar("uses_plugins_here", default=True)
SEARCH = "search"  # folder of border-tune's search spaces; not a group of a run


def user_folders(config_dirs: Sequence[str] = ()) -> list[str]:
    """Returns the folders of `--config-dir`, $BORDER_CONFIG_PATH and plug-ins as Hydra URLs, in
    order of precedence."""
    origins = [(folder, "--config-dir") for folder in config_dirs]
    variable = os.environ.get(ENVIRONMENT_VARIABLE, "")
    origins += [(path, f"${ENVIRONMENT_VARIABLE}") for path in variable.split(os.pathsep) if path]
    return [_to_url(folder, origin) for folder, origin in origins] + _call_plugins()


def _to_url(folder: str, origin: str) -> str:
    path = expand_user(folder).resolve()
    if not path.is_dir():
        raise ConfigError(f"{origin}: no such directory: {path}")
    return f"file://{path}"


def plugins_here() -> list[EntryPoint]:
    """Returns the plug-ins declared in ./pyproject.toml, installed or not, so that a repository of
    experiments works without installation. Ignores folders written by border_cli."""
    text = read_bytes_or_empty(Path(PROJECT)).decode(errors="replace")
    if PLUGINS not in text or find_mark(Path.cwd()) or not uses_plugins_here.get():
        return []
    # imported late: few commands read ./pyproject.toml
    import tomllib

    try:
        points = tomllib.loads(text).get("project", {}).get("entry-points", {})
        declared = dict(points.get(PLUGINS, {}))
    except (tomllib.TOMLDecodeError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{PROJECT} cannot be read: {error}") from error
    return [EntryPoint(name, str(value), PLUGINS) for name, value in declared.items()]


def _find_plugins() -> list[EntryPoint]:
    """Returns the plug-ins of the current directory, which it adds to sys.path, and those that are
    installed."""
    installed = list(entry_points(group=PLUGINS))
    targets = {plugin.value for plugin in installed}
    local = [plugin for plugin in plugins_here() if plugin.value not in targets]
    if local:
        add_to_path([str(Path.cwd())])
    return [*local, *installed]


def _call_plugins() -> list[str]:
    """Calls every plug-in, which registers components, and returns their config folders."""
    folders = []
    for entry in _find_plugins():
        try:
            folder = entry.load()()
        except Exception as error:
            reason = str(error) if isinstance(error, ConfigError) else place_of(error)
            raise ConfigError(
                f"the plug-in {entry.name!r} ({entry.value}) failed: {reason}"
            ) from error
        if folder is not None:
            folders.append(folder if "://" in folder else _to_url(folder, entry.value))
    return folders


def folder_of_url(url: str) -> Traversable:
    """Returns the folder that a Hydra URL points to."""
    scheme, _, location = url.partition("://")
    return importlib.resources.files(location) if scheme == "pkg" else Path(location)


def names_in(value: object) -> list[str]:
    """Returns the modules in a value of `imports`: null, a name or a list."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [str(value)]
    return [str(name) for name in value]


def import_modules(names: Sequence[str]) -> None:
    """Imports modules. Raises ConfigError if one is missing or fails."""
    for name in names:
        refuse_standard(name, "imports")
        try:
            importlib.import_module(name)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"imports: {name!r} cannot be imported from {Path.cwd()} or the installed "
                f"packages: {place_of(error)}"
            ) from error


def add_to_path(folders: Sequence[str]) -> None:
    """Appends folders to sys.path. Modules of the same name found earlier take precedence."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def add_current_directory(*, trust: bool) -> None:
    """Appends the current directory to sys.path, which console scripts do not search. A directory
    written by border_cli needs `trust`."""
    if trust or find_mark(Path.cwd()) is None:
        add_to_path([str(Path.cwd())])


def homes(modules: Iterable[str]) -> list[str]:
    """Returns the folders of imported modules that are not installed packages, so that a later
    process finds them."""
    tops = {module: sys.modules.get(module.partition(".")[0]) for module in modules}
    paths = [
        next(iter(getattr(top, "__path__", [])), getattr(top, "__file__", None))
        for top in tops.values()
    ]
    folders = dict.fromkeys(str(Path(path).absolute().parent) for path in paths if path)
    return [folder for folder in folders if not is_installed(Path(folder))]
