"""The saved settings of a run, read as data, with checks of what they may import, call and open.

The file may come from somebody else. It must be one mapping under the defaults list that we write,
without aliases, tags (except bytes and paths, which Python callers may use), interpolations and
Hydra settings. Errors for anything else name the file and the line or entry. No other file of its
folder is composed. The rules of `SavedSettings` are those of docs/reference/trust.md.
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

from border_cli.config.check import explain_errors, refuse_untyped, run_settings, with_types
from border_cli.config.files import ConfigFile, Files
from border_cli.config.job import ALWAYS_LISTED
from border_cli.config.search_path import (
    add_current_directory,
    add_to_path,
    import_modules,
    names_in,
    user_folders,
)
from border_cli.errors import CheckpointError, ConfigError, os_errors_as
from border_cli.registry import ENVS, GROUPS, register_builtin
from border_cli.run.status import import_paths
from border_cli.settings.base import flat
from border_cli.settings.run import EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, read_bytes, settings_path
from border_cli.system.foreign import (
    keep_written_folders_off_path,
    may_import,
    refuse_standard,
)
from border_cli.words import format_override, shortest

ADDRESSES = {"actor_manager.address", "evaluator.address"}  # settings with cluster addresses
_OF_ENV = re.compile(r"(?:evaluator\.)?env\.(id|wrappers|kwargs)\b")
_FILMS = re.compile(r"(.*[.:])?RecordVideo")  # a wrapper that writes files
_NEAR = re.compile(  # cluster addresses that are always allowed
    r"None|auto|local|(ray://)?(localhost|127\.[\d.]+|\[::1\]):\d+", re.ASCII
)
# Order of these groups in conf/config.yaml; all others come before them.
_LAST = ("evaluator", "recorder", "callback", "env", "agent", "trainer")
_ENTRY = re.compile(
    r"/schema/(?P<group>\w+)/(?P<component>[^/@\s]+)@(?P<package>(?P=group)(\.[^@\s]+)?)"
)
_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # matches `${` unless it is escaped


def load_resolved(
    run_dir: Path, *, trust: bool = False, plays: bool = True, typed: Collection[str] = ()
) -> RunConfig:
    """Returns the typed and checked RunConfig that a run has saved.

    Imports its modules; those in `typed` are not checked. Raises ConfigError for values that saved
    settings must not have, except with `plays=False`, when no environment will be constructed.
    """
    file = settings_path(run_dir)
    with run_import_path(run_dir, trust=trust):
        user_folders()  # calls the plug-ins, which register components
        register_builtin()
        saved = saved_settings(file.parent, trust=trust, typed=ADDRESSES)
        saved.refuse_imports(typed)
        config = replace(_build_config(file, saved.settings), run_dir=None)
        if plays:
            saved.refuse_values(config)
        return config


def read_config(file: Path) -> RunConfig:
    """Returns the typed and checked RunConfig of a saved file. Imports its modules."""
    return _build_config(file, read_saved(file))


def _build_config(file: Path, settings: Mapping[str, Any]) -> RunConfig:
    import_modules(names_in(settings.get("imports")))
    files = Files(config_name=file.stem)
    files.parts = [ConfigFile(file.stem, "", file, OmegaConf.create(dict(settings)))]
    with explain_errors(files, ()):
        kinds = {
            entry["package"]: GROUPS[entry["group"]].entry(entry["component"]).config_type
            for entry in _schemas_of(settings)
        }
        values = {key: value for key, value in settings.items() if key != "defaults"}
        config = with_types(values, kinds)
        refuse_untyped(config, files.parts)
        return run_settings(config)


@contextmanager
def run_import_path(run_dir: Path, *, trust: bool) -> Iterator[None]:
    """Sets up sys.path to import the modules of a saved run, and restores it after the block.

    Modules are searched in the current directory, on $PYTHONPATH and in the installed packages, but
    in no folder written by border_cli. With `trust`, the current directory may be such a folder,
    and the folders in which the run found its modules are searched as well.
    """
    old_path = list(sys.path)
    with os_errors_as(CheckpointError):
        recorded = import_paths(run_dir)
    if trust:
        add_to_path(recorded)
    else:
        keep_written_folders_off_path()
    add_current_directory(trust=trust)
    try:
        yield
    finally:
        sys.path[:] = old_path


def saved_settings(
    folder: Path, *, trust: bool = False, typed: Set[str] = frozenset()
) -> SavedSettings:
    """Reads the settings in the `.hydra` folder of a run, or in that of an exported policy."""
    settings = read_saved(folder / SETTINGS.name)
    return SavedSettings(folder=folder, settings=settings, trust=trust, typed=typed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSettings:
    """Saved settings as the primary config of a command, possibly with other options."""

    folder: Path  # `.hydra` of the run, or the folder of an exported policy
    settings: dict[str, Any]
    trust: bool = False  # whether `trust=true` was typed
    typed: Set[str] = frozenset()  # settings that need no check: typed elsewhere, or unused

    def with_options(self, options: Mapping[str, str]) -> SavedSettings:
        """Returns a copy with other options of some groups, and without their saved values.

        The option `???` requires a choice on the command line.
        """
        entries = [
            entry
            for entry in self.settings["defaults"]
            if not str(entry).startswith(tuple(f"/schema/{group}/" for group in options))
        ]
        # In the order of conf/config.yaml: a file can only override options of earlier groups.
        groups = sorted(options, key=lambda name: _LAST.index(name) if name in _LAST else -1)
        chosen = [{group: options[group]} for group in groups]
        settings = {key: value for key, value in self.settings.items() if key not in options}
        settings["defaults"] = [*entries[:-1], *chosen, entries[-1]]
        return replace(self, settings=settings)

    @property
    def served(self) -> ConfigResult:
        """The primary config passed to Hydra."""
        content = OmegaConf.create(self.settings)
        return ConfigResult("user", f"file://{self.folder}", content, {"package": None})

    @property
    def run_dir(self) -> Path:
        """The run directory or the folder of an exported policy, with links resolved."""
        is_run = self.folder.name == SETTINGS.parent.name
        return (self.folder.parent if is_run else self.folder).resolve()

    def _locate(self, name: str) -> str:
        """Names a setting together with its file, for messages."""
        return f"{shortest(self.folder / SETTINGS.name)}: {name}"

    def refuse_imports(self, typed: Collection[str]) -> None:
        """Raises ConfigError if `imports` has a module that is neither typed nor allowed."""
        for module in names_in(self.settings.get("imports")):
            if module not in typed:
                self._refuse_module(module, "imports")

    def _refuse_module(self, module: str, name: str) -> None:
        refuse_standard(module, self._locate(name))
        if self.trust or may_import(module, self.run_dir):
            return
        recorded = ", ".join(import_paths(self.run_dir)) or "not recorded"
        raise ConfigError(
            f"{self._locate(name)} names the module {module!r}, which was not imported. Modules of "
            "a run must be your own, in the current directory, on $PYTHONPATH or in an editable "
            "install, or belong to an installed package that requires Gymnasium or border_cli; "
            f"none may come from the run directory. The run had found its modules in: {recorded}. "
            "If you have the code and trust it: cd to its folder, or type that setting (resume=, "
            "--from), or trust=true (from Python: trust=True), which also searches the folders "
            "of the run"
        )

    def refuse_values(self, config: RunConfig, typed: Set[str] = frozenset()) -> None:
        """Raises ConfigError for values that would call, open or connect to something that is not
        allowed. Values of `typed` settings are not checked."""
        for name, value in flat(config).items():
            of_env = _OF_ENV.match(name)
            if name in typed | self.typed:
                continue
            if of_env:
                self._refuse_env_value(config.env, of_env[1], name, value)
            elif name.endswith(".address"):
                if _NEAR.fullmatch(str(value)) or value == os.environ.get("RAY_ADDRESS"):
                    continue
                raise ConfigError(
                    f"{self._locate(name)}={value} is not used: a saved address must be null, "
                    "auto, this machine's or that of $RAY_ADDRESS. Type "
                    f"{format_override(name, value)}, or another address"
                )

    def _refuse_env_value(self, env: EnvConfig, key: str, name: str, value: Any) -> None:
        """Refuses calls that are not allowed, paths outside the run, and the video wrapper."""
        if self.trust or not env.calls_by_name:
            return
        for _, module in modules_of_env({key: value}):
            self._refuse_module(module, name)
            if key == "id":
                ENVS.load(env).refuse_saved_id(value, self._locate(name))
        for text in _iterate_strings(value):
            if _FILMS.fullmatch(text) or self._is_outside(text):
                raise ConfigError(
                    f"{self._locate(name)} has {text!r}, which writes or leads out of the run. "
                    "If you trust it, type that setting (resume=, --from), or trust=true"
                )

    def _is_outside(self, text: str) -> bool:
        """Returns whether a string is a path that leads out of the run directory."""
        path = Path(text.removeprefix("file:"))
        if text.startswith("~") or ".." in path.parts:
            return True
        return path.is_absolute() and not path.resolve().is_relative_to(self.run_dir)


def _iterate_strings(value: Any) -> Iterator[str]:
    """Yields all strings in plain values, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _iterate_strings(entry)


def saved_options(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the chosen option of each group, or its component if no option is saved. If a group
    has several components, returns the last one."""
    components = {schema["group"]: schema["component"] for schema in _schemas_of(settings)}
    groups = {group: values for group, values in settings.items() if isinstance(values, dict)}
    options = {group: values["option"] for group, values in groups.items() if values.get("option")}
    return {**components, **options}


def _schemas_of(settings: Mapping[str, Any]) -> list[re.Match[str]]:
    """Returns the schemas in the defaults list of saved settings."""
    return [match for entry in settings["defaults"] if (match := _ENTRY.fullmatch(str(entry)))]


def read_saved(file: Path) -> dict[str, Any]:
    """Reads the saved settings of a run: plain values under the defaults list that we write.

    Raises ConfigError with the file and the entry for anything else.
    """
    content = read_plain(file)
    entries = content.get("defaults") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f"{file} is not a saved configuration: it has no defaults list")
    for name in ("hydra", "run_dir", "resume", "dry_run"):
        if content.get(name):
            raise ConfigError(
                f"{file}: {name} is not read from a run: it decides which files are written, and "
                "a run never saves it"
            )
    for text in _iterate_strings(content):
        if _INTERPOLATION.search(text):  # settings are saved resolved, so it was added later
            raise ConfigError(f"{file}: {text} is an interpolation, which a run never saves")
    for entry in entries:
        match = _ENTRY.fullmatch(str(entry))
        if entry not in ALWAYS_LISTED and not (match and match["group"] in GROUPS):
            raise ConfigError(f"{file}: its defaults list has {entry!r}, which a run never saves")
    return {str(key): value for key, value in content.items()}


def read_plain(file: Path) -> Any:
    """Reads plain values from a YAML file of a run directory, which may be somebody else's.

    Raises ConfigError for tags that construct objects, and for aliases, which can expand a small
    file into a huge one. Aliases are refused before any value is built.
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
