"""Where the user's own is looked for: folders of configuration files, which come before ours,
plug-ins, and modules that register components, wherever `imports` is written. Never imports Hydra.

./conf is read only where somebody names it.
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
from border_cli.system.files import readable_bytes
from border_cli.system.foreign import PLUGINS, is_installed, mark_of, refuse_standard

OURS = "border_cli.conf"
ENVIRONMENT_VARIABLE = "BORDER_CONFIG_PATH"
PROJECT = "pyproject.toml"
# False while a shell completes a command, which runs nothing of the current directory.
uses_plugins_here = ContextVar("uses_plugins_here", default=True)
SEARCH = "search"  # the folder of the spaces of border-tune, no group of a run


def user_folders(config_dirs: Sequence[str] = ()) -> list[str]:
    """`--config-dir`, $BORDER_CONFIG_PATH and plug-ins, first wins, as Hydra's URLs."""
    named = [(folder, "--config-dir") for folder in config_dirs]
    variable = os.environ.get(ENVIRONMENT_VARIABLE, "")
    named += [(each, f"${ENVIRONMENT_VARIABLE}") for each in variable.split(os.pathsep) if each]
    return [_url(folder, origin) for folder, origin in named] + _plugin_folders()


def _url(folder: str, origin: str) -> str:
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise ConfigError(f"{origin}: no such directory: {path}")
    return f"file://{path}"


def plugins_here() -> list[EntryPoint]:
    """The plug-ins that ./pyproject.toml declares, installed or not: a repository of experiments
    works in its own directory as it is. A folder that border_cli wrote is no project."""
    text = readable_bytes(Path(PROJECT)).decode(errors="replace")
    if PLUGINS not in text or mark_of(Path.cwd()) or not uses_plugins_here.get():
        return []
    # imported late: few commands read ./pyproject.toml
    import tomllib

    try:
        points = tomllib.loads(text).get("project", {}).get("entry-points", {})
        named = dict(points.get(PLUGINS, {}))
    except (tomllib.TOMLDecodeError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{PROJECT} cannot be read: {error}") from error
    return [EntryPoint(name, str(value), PLUGINS) for name, value in named.items()]


def _plugins() -> list[EntryPoint]:
    """Plugins of the current directory, which can be imported from now on, then those installed."""
    installed = list(entry_points(group=PLUGINS))
    known = {each.value for each in installed}
    here = [each for each in plugins_here() if each.value not in known]
    if here:
        add_to_path([str(Path.cwd())])
    return [*here, *installed]


def _plugin_folders() -> list[str]:
    """Calls every plug-in, which registers its components and may name a folder."""
    folders = []
    for entry in _plugins():
        try:
            folder = entry.load()()
        except Exception as error:
            reason = str(error) if isinstance(error, ConfigError) else place_of(error)
            if isinstance(error, ModuleNotFoundError) and error.name == entry.module:
                reason += f"; {PROJECT} names it, under [project.entry-points]: is it renamed?"
            raise ConfigError(
                f"the plug-in {entry.name!r} ({entry.value}) failed: {reason}"
            ) from error
        if folder is not None:
            folders.append(folder if "://" in folder else _url(folder, entry.value))
    return folders


def opened(url: str) -> Traversable:
    """The folder behind one of Hydra's URLs."""
    scheme, _, place = url.partition("://")
    return importlib.resources.files(place) if scheme == "pkg" else Path(place)


def names_in(value: object) -> list[str]:
    """The modules that a value of `imports` names: none, one, or a list."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [str(value)]
    return [str(each) for each in value]


def import_modules(names: Sequence[str]) -> None:
    """Imports each; a module that is missing or fails refuses the settings that name it."""
    for name in names:
        refuse_standard(name, "imports")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name + ".").startswith(error.name + "."):
                raise ConfigError(
                    f"imports: there is no module {name!r} in {Path.cwd()} or among the "
                    "installed packages"
                ) from error
            raise ConfigError(
                f"imports: {name!r} needs {error.name!r}: {place_of(error)}"
            ) from error
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"imports: {name!r} failed: {place_of(error)}") from error


def add_to_path(folders: Sequence[str]) -> None:
    """Puts folders at the end of sys.path: a module of the same name there is another one."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def add_current_directory(*, trust: bool) -> None:
    """Puts the current directory at the end of sys.path, since console scripts do not search it: a
    module of the same name there is another one. With `trust` also one that border_cli wrote."""
    if trust or mark_of(Path.cwd()) is None:
        add_to_path([str(Path.cwd())])


def homes(modules: Iterable[str]) -> list[str]:
    """The folders of those modules that are imported by now and are no installed packages, for a
    later process."""
    tops = {module: sys.modules.get(module.partition(".")[0]) for module in modules}
    places = [
        next(iter(getattr(top, "__path__", [])), getattr(top, "__file__", None))
        for top in tops.values()
    ]
    found = dict.fromkeys(str(Path(each).absolute().parent) for each in places if each)
    return [each for each in found if not is_installed(Path(each))]
