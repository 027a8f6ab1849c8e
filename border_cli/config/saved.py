"""The saved settings of a run, read again as data, and the modules that they name.

The file may be another's. It is one mapping under the defaults list that we write, without aliases,
tags (except bytes and paths, which Python callers may use), interpolations and Hydra settings.
Anything else is refused with file and line or entry, and no other file of its folder is composed.

What the settings import, call, open and dial is checked by `SavedSettings`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.check import explained, refuse_untyped, run_settings, with_types
from border_cli.config.job import ALWAYS_LISTED
from border_cli.config.saved_names import ADDRESSES, SavedSettings
from border_cli.config.search_path import (
    add_current_directory,
    add_to_path,
    import_modules,
    names_in,
    user_folders,
)
from border_cli.config.sources import ConfigFile, Files
from border_cli.errors import CheckpointError, ConfigError, reachable
from border_cli.registry import GROUPS, register_builtin
from border_cli.run.status import import_paths
from border_cli.settings.run import RunConfig
from border_cli.system.files import SETTINGS, read_bytes, settings_of
from border_cli.system.foreign import keep_written_folders_off_path

# The other groups come before.
_ORDER = ("evaluator", "recorder", "callback", "env", "agent", "trainer")
_ENTRY = re.compile(
    r"/schema/(?P<group>\w+)/(?P<component>[^/@\s]+)@(?P<package>(?P=group)(\.[^@\s]+)?)"
)
_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # unless it is escaped


def read_plain(file: Path) -> Any:
    """The plain values in a YAML file of a run directory, which may be another's.

    Raises ConfigError for what our own files never have: aliases, by which a small file becomes a
    huge one, before anything is built; and tags that build objects.
    """
    try:
        text = read_bytes(file).decode()
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                raise ConfigError(f"{file}: line {line} has an alias, which a run never writes")
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    except (OSError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {' '.join(str(error).split())}") from error


def _refuse_interpolations(file: Path, value: Any) -> None:
    """Settings are saved resolved: one that reads the environment, say, was put there."""
    if isinstance(value, str) and _INTERPOLATION.search(value):
        raise ConfigError(f"{file}: {value} is an interpolation, which a run never saves")
    within = value.values() if isinstance(value, dict) else value
    for each in within if isinstance(value, dict | list) else ():
        _refuse_interpolations(file, each)


def read_saved(file: Path) -> dict[str, Any]:
    """The saved settings of a run: values alone, under the defaults list that we write.

    Raises ConfigError naming the file and what else is in it.
    """
    found = read_plain(file)
    entries = found.get("defaults") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f"{file} is not a saved configuration: it has no defaults list")
    for name in ("hydra", "run_dir", "resume", "dry_run"):
        if found.get(name):
            raise ConfigError(
                f"{file}: {name} is not read from a run: it decides which files are written, and "
                "a run never saves any"
            )
    _refuse_interpolations(file, found)
    for entry in entries:
        form = _entry(entry)
        if entry not in ALWAYS_LISTED and not (form and form["group"] in GROUPS):
            raise ConfigError(f"{file}: its defaults list has {entry!r}, which a run never saves")
    return {str(key): value for key, value in found.items()}


def _entry(listed: object) -> re.Match[str] | None:
    """The schema that an entry of a defaults list chooses."""
    return _ENTRY.fullmatch(str(listed))


def saved_options(settings: Mapping[str, Any]) -> dict[str, str]:
    """The option that was chosen of each group, or its component where none was; of recorders the
    last."""
    entries = filter(None, map(_entry, settings["defaults"]))
    components = {each["group"]: each["component"] for each in entries}
    groups = {group: each for group, each in settings.items() if isinstance(each, dict)}
    options = {group: each["option"] for group, each in groups.items() if each.get("option")}
    return {**components, **options}


def saved_settings(
    folder: Path, *, trust: bool = False, typed: Set[str] = frozenset()
) -> SavedSettings:
    """The settings in the `.hydra` of a run."""
    settings = read_saved(folder / SETTINGS.name)
    return SavedSettings(folder=folder, settings=settings, trust=trust, typed=typed)


def place(group: str) -> int:
    """Where a group stands in conf/config.yaml: a file chooses options of those before its own."""
    return _ORDER.index(group) if group in _ORDER else -1


@contextmanager
def opened_run(run_dir: Path, *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a saved run are found where the user's own Python finds any:
    in the current directory, on $PYTHONPATH, among the installed packages. No folder that
    border_cli wrote is on sys.path.

    With `trust` also in the current directory if border_cli wrote it, and where the run had found
    its modules. Restores sys.path afterwards.
    """
    before = list(sys.path)
    with reachable(CheckpointError):
        recorded = import_paths(run_dir)
    if trust:
        add_to_path(recorded)
    else:
        keep_written_folders_off_path()
    add_current_directory(trust=trust)
    try:
        yield
    finally:
        sys.path[:] = before


def load_resolved(
    run_dir: Path, *, trust: bool = False, plays: bool = True, typed: Collection[str] = ()
) -> RunConfig:
    """The RunConfig that a run has saved; typed and checked.

    Imports the modules that it names; those in `typed` need no check. Raises ConfigError for what a
    saved folder may not name. With `plays=False` the environment is not constructed, and its
    settings are not checked.
    """
    file = settings_of(run_dir)
    if not file.is_file():
        raise CheckpointError(f"{run_dir} is not a run directory: there is no {file}")
    with opened_run(run_dir, trust=trust):
        user_folders()  # calls the plug-ins, which register components
        register_builtin()
        saved = saved_settings(file.parent, trust=trust, typed=ADDRESSES)
        saved.refuse_imports(typed)
        config = replace(read_config(file), run_dir=None)
        if plays:
            saved.refuse_values(config)
        return config


def read_config(file: Path) -> RunConfig:
    """The RunConfig of a saved file, typed and checked; imports the modules that it names."""
    settings = read_saved(file)
    imports = names_in(settings.get("imports"))
    import_modules(imports)
    files = Files()
    files.parts = [ConfigFile(file.stem, "", file, OmegaConf.create(settings))]
    chosen = [each for each in map(_entry, settings.pop("defaults")) if each]
    with explained(files, file.stem, ()):
        kinds = {
            each["package"]: GROUPS[each["group"]].entry(each["component"]).config_type
            for each in chosen
        }
        config = with_types(settings, kinds)
        refuse_untyped(config, files.parts)
        return run_settings(config)
