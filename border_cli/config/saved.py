"""The saved settings of a run, read again as data, and what they may import, call, open and dial.

The file may be another's. It is one mapping under the defaults list that we write, without aliases,
tags (except bytes and paths, which Python callers may use), interpolations and Hydra settings.
Anything else is refused with file and line or entry, and no other file of its folder is composed.
Each rule of `SavedSettings` is one of docs/runs.md, "Other people's runs".
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.check import explained, refuse_untyped, run_settings, with_types
from border_cli.config.files import ConfigFile, Files
from border_cli.config.job import ALWAYS_LISTED
from border_cli.config.search_path import (
    add_current_directory,
    add_to_path,
    import_modules,
    names_in,
    user_folders,
)
from border_cli.errors import CheckpointError, ConfigError, reachable
from border_cli.registry import ENVS, GROUPS, register_builtin
from border_cli.run.status import import_paths
from border_cli.settings.base import flat
from border_cli.settings.run import EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, read_bytes, settings_of
from border_cli.system.foreign import (
    keep_written_folders_off_path,
    may_import,
    refuse_standard,
)
from border_cli.words import setting, shortest

ADDRESSES = {"actor_manager.address", "evaluator.address"}  # of clusters
_OF_ENV = re.compile(r"(?:evaluator\.)?env\.(id|wrappers|kwargs)\b")
_FILMS = re.compile(r"(.*[.:])?RecordVideo")  # a wrapper that writes
_NEAR = re.compile(  # addresses of clusters
    r"None|auto|local|(ray://)?(localhost|127\.[\d.]+|\[::1\]):\d+", re.ASCII
)
# The order of groups in conf/config.yaml; the others come before.
_LAST = ("evaluator", "recorder", "callback", "env", "agent", "trainer")
_ENTRY = re.compile(
    r"/schema/(?P<group>\w+)/(?P<component>[^/@\s]+)@(?P<package>(?P=group)(\.[^@\s]+)?)"
)
_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # unless it is escaped


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
        config = replace(_config_of(file, saved.settings), run_dir=None)
        if plays:
            saved.refuse_values(config)
        return config


def read_config(file: Path) -> RunConfig:
    """The RunConfig of a saved file, typed and checked; imports the modules that it names."""
    return _config_of(file, read_saved(file))


def _config_of(file: Path, settings: Mapping[str, Any]) -> RunConfig:
    import_modules(names_in(settings.get("imports")))
    files = Files(config_name=file.stem)
    files.parts = [ConfigFile(file.stem, "", file, OmegaConf.create(dict(settings)))]
    with explained(files, ()):
        kinds = {
            entry["package"]: GROUPS[entry["group"]].entry(entry["component"]).config_type
            for entry in _schemas_of(settings)
        }
        values = {key: value for key, value in settings.items() if key != "defaults"}
        config = with_types(values, kinds)
        refuse_untyped(config, files.parts)
        return run_settings(config)


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


def saved_settings(
    folder: Path, *, trust: bool = False, typed: Set[str] = frozenset()
) -> SavedSettings:
    """The settings in the `.hydra` of a run."""
    settings = read_saved(folder / SETTINGS.name)
    return SavedSettings(folder=folder, settings=settings, trust=trust, typed=typed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSettings:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run, or the folder of an exported policy
    settings: dict[str, Any]
    trust: bool = False  # whether `trust=true` was typed
    typed: Set[str] = frozenset()  # settings that were typed elsewhere, or that nothing will use

    def choosing(self, options: Mapping[str, str]) -> SavedSettings:
        """These settings with other options of groups, without the saved values of these groups.

        `???` demands a choice, which the command line makes.
        """
        entries = [
            entry
            for entry in self.settings["defaults"]
            if not str(entry).startswith(tuple(f"/schema/{group}/" for group in options))
        ]
        # As in conf/config.yaml: a file chooses options of the groups before its own.
        groups = sorted(options, key=lambda each: _LAST.index(each) if each in _LAST else -1)
        chosen = [{group: options[group]} for group in groups]
        settings = {key: value for key, value in self.settings.items() if key not in options}
        settings["defaults"] = [*entries[:-1], *chosen, entries[-1]]
        return replace(self, settings=settings)

    @property
    def served(self) -> ConfigResult:
        """The primary configuration that Hydra gets."""
        content = OmegaConf.create(self.settings)
        return ConfigResult("user", f"file://{self.folder}", content, {"package": None})

    @property
    def run_dir(self) -> Path:
        """The run directory, or the folder of an exported policy, without links."""
        is_run = self.folder.name == SETTINGS.parent.name
        return (self.folder.parent if is_run else self.folder).resolve()

    def _of(self, name: str) -> str:
        """A setting of this file, for messages."""
        return f"{shortest(self.folder / SETTINGS.name)}: {name}"

    def refuse_imports(self, typed: Collection[str]) -> None:
        """Raises ConfigError for a module of `imports` that was not typed and is not allowed."""
        for module in names_in(self.settings.get("imports")):
            if module not in typed:
                self._refuse_module(module, "imports")

    def _refuse_module(self, module: str, name: str) -> None:
        refuse_standard(module, self._of(name))
        if self.trust or may_import(module, self.run_dir):
            return
        recorded = ", ".join(import_paths(self.run_dir)) or "it does not say where"
        raise ConfigError(
            f"{self._of(name)} names the module {module!r}. Modules of a run must be your own, in "
            "the current directory, on $PYTHONPATH or in an editable install, or belong to an "
            "installed package that requires Gymnasium or border_cli; none comes from the run "
            f"directory, and nothing was imported. The run had found its modules in: {recorded}. "
            "Where you have its code and trust it: cd to the folder that holds it, or type that "
            "setting (resume=, --from), or trust=true (from Python: trust=True), which also looks "
            "where the run says"
        )

    def refuse_values(self, config: RunConfig, typed: Set[str] = frozenset()) -> None:
        """Raises ConfigError for values that were not typed and call, open or dial something.

        `typed`: the names of settings that were typed.
        """
        for name, value in flat(config).items():
            of_env = _OF_ENV.match(name)
            if name in typed | self.typed:
                continue
            if of_env:
                self._refuse_of_env(config.env, of_env[1], name, value)
            elif name.endswith(".address"):
                if _NEAR.fullmatch(str(value)) or value == os.environ.get("RAY_ADDRESS"):
                    continue
                raise ConfigError(
                    f"{self._of(name)}={value} is not dialled: a saved address must be null, "
                    f"auto, this machine's or that of $RAY_ADDRESS. Type {setting(name, value)}, "
                    "or another one"
                )

    def _refuse_of_env(self, env: EnvConfig, key: str, name: str, value: Any) -> None:
        """Refuses calls, paths that lead out of the run, and the wrapper that writes films."""
        if self.trust or not env.calls_by_name:
            return
        for _, module in modules_of_env({key: value}):
            self._refuse_module(module, name)
            if key == "id":
                ENVS.load(env).refuse_saved_id(value, self._of(name))
        for text in _texts(value):
            if _FILMS.fullmatch(text) or self._is_outside(text):
                raise ConfigError(
                    f"{self._of(name)} has {text!r}, which writes or leads out of the run. "
                    "Where you trust it, type that setting (resume=, --from), or trust=true"
                )

    def _is_outside(self, text: str) -> bool:
        """Whether a text is a path that leads out of the run."""
        path = Path(text.removeprefix("file:"))
        if text.startswith("~") or ".." in path.parts:
            return True
        return path.is_absolute() and not path.resolve().is_relative_to(self.run_dir)


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain values, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(entry)


def saved_options(settings: Mapping[str, Any]) -> dict[str, str]:
    """The option that was chosen of each group, or its component where none was; of recorders the
    last."""
    components = {each["group"]: each["component"] for each in _schemas_of(settings)}
    groups = {group: each for group, each in settings.items() if isinstance(each, dict)}
    options = {group: each["option"] for group, each in groups.items() if each.get("option")}
    return {**components, **options}


def _schemas_of(settings: Mapping[str, Any]) -> list[re.Match[str]]:
    """The schemas that the defaults list of saved settings has."""
    return [found for each in settings["defaults"] if (found := _ENTRY.fullmatch(str(each)))]


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
    for text in _texts(found):
        if _INTERPOLATION.search(text):  # settings are saved resolved: somebody put it there
            raise ConfigError(f"{file}: {text} is an interpolation, which a run never saves")
    for entry in entries:
        match = _ENTRY.fullmatch(str(entry))
        if entry not in ALWAYS_LISTED and not (match and match["group"] in GROUPS):
            raise ConfigError(f"{file}: its defaults list has {entry!r}, which a run never saves")
    return {str(key): value for key, value in found.items()}


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
