"""The saved settings of a run, read again as data, and the modules that they name.

The file may be another's. It is one mapping under the defaults list that we write, without aliases,
tags (except bytes and paths, which Python callers may use), interpolations and Hydra settings.
Anything else is refused with file and line or entry, and no other file of its folder is composed.

What its settings import, call, open and dial is checked by `Saved`: each rule is one of
docs/runs.md. Modules come only from the user's own Python, and never out of the run directory.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.check import explained, refuse_untyped, run_settings, with_types
from border_cli.config.resolved import ALWAYS_LISTED
from border_cli.config.search_path import (
    add_current_directory,
    add_to_path,
    import_modules,
    names_in,
    user_folders,
)
from border_cli.config.sources import Files, Part
from border_cli.errors import CheckpointError, ConfigError, reachable
from border_cli.registry import ENVS, GROUPS, components, register_builtin
from border_cli.run.status import import_paths
from border_cli.settings.run import AUTO, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, read_bytes, settings_of
from border_cli.system.foreign import keep_written_folders_off_path, refuse_saved_module
from border_cli.words import setting, shortest

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
    if "hydra" in found:
        raise ConfigError(
            f"{file}: Hydra settings (`hydra:`) are not read from a run: they decide which files "
            "are written, and a run never saves any"
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


Typed = Callable[[str, Any], bool]  # whether somebody typed a setting with this value


def nothing_typed(name: str, value: Any) -> bool:  # noqa: ARG001 - a `Typed`
    """For a folder that is opened as it is."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run, or the folder of an exported policy
    settings: dict[str, Any]
    trust: bool = False  # whether `trust=true` was typed
    dials: bool = True  # whether the command connects to clusters

    def choosing(self, group: str, option: str = "???") -> Saved:
        """These settings with another option of a group, without the saved values.

        `???` demands a choice, which the command line makes.
        """
        prefix = f"/schema/{group}/"
        entries = [each for each in self.settings["defaults"] if not str(each).startswith(prefix)]
        settings = {**self.settings, "defaults": [*entries[:-1], {group: option}, entries[-1]]}
        settings.pop(group, None)
        return replace(self, settings=settings)

    @property
    def run_dir(self) -> Path:
        """The run directory, or the folder of an exported policy, without links."""
        whole = self.folder.resolve()
        return whole.parent if whole.name == SETTINGS.parent.name else whole

    def _of(self, name: str) -> str:
        """A setting of this file, for messages."""
        return f"{shortest(self.folder / SETTINGS.name)}: {name}"

    def refuse_imports(self, typed: Collection[str]) -> None:
        """Raises ConfigError for a module of `imports` that nobody typed, and that is neither the
        user's own nor of a package with environments."""
        for module in names_in(self.settings.get("imports")):
            if module not in typed:
                self._refuse_module(module, "imports")

    def _refuse_module(self, module: str, name: str) -> None:
        if self.trust:
            return
        recorded = ", ".join(import_paths(self.run_dir)) or "it does not say where"
        elsewhere = (
            "Modules of a run are imported from the current directory "
            f"({Path.cwd()}), $PYTHONPATH and the installed packages alone, never from the run "
            "directory, and it is not there; nothing was imported. The run had found its modules "
            f"in: {recorded}. Where you have its code and trust it: cd to the folder that holds "
            "it, or trust=true, typed (from Python: trust=True), which also looks where the run "
            "says"
        )
        refuse_saved_module(module, self._of(name), self.run_dir, elsewhere)

    def refuse_values(self, config: RunConfig, is_typed: Typed = nothing_typed) -> None:
        """Raises ConfigError for what the settings call, open or dial although nobody typed it."""
        envs: dict[str, Mapping[str, Any]] = {"env": vars(config.env)}
        envs["evaluator.env"] = config.evaluator.env
        for place, env in envs.items() if config.env.calls_by_name and not self.trust else ():
            new = {
                name: value for name, value in env.items() if not is_typed(f"{place}.{name}", value)
            }
            for name, module in modules_of_env(new):
                self._refuse_module(module, f"{place}.{name}")
            if ":" in str(new.get("id")):
                ENVS.load(config.env).refuse_saved_id(new["id"], self._of(place))
            self._refuse_arguments(place, new, is_typed)
        for place, chosen in components(config).items() if self.dials else ():
            address, name = getattr(chosen, "address", None), f"{place}.address"
            if not _is_near(address) and not is_typed(name, address):
                raise ConfigError(
                    f"{self._of(name)}={address} is not dialled: a saved address must be null, "
                    f"auto, this machine's or that of $RAY_ADDRESS. Type "
                    f"{setting(name, str(address))}, or another one"
                )

    def _refuse_arguments(self, place: str, env: Mapping[str, Any], is_typed: Typed) -> None:
        """Refuses paths that lead out of the run, and the wrapper that writes films."""
        films, values = f"{place}.wrappers", {f"{place}.wrappers": env.get("wrappers")}
        for key, value in (env.get("kwargs") or {}).items():
            values[f"{place}.kwargs.{key}"] = value
        for name, value in values.items():
            for text in () if is_typed(name, value) else _texts(value):
                writes = name == films and re.split(r"[.:]", text)[-1] == "RecordVideo"
                if writes or self._is_outside(text):
                    raise ConfigError(
                        f"{self._of(name)} has {text!r}, which writes or leads out of the run. "
                        "Where you trust it, type that setting (resume=, --from), or trust=true"
                    )

    def _is_outside(self, text: str) -> bool:
        """Whether a text is a path that leads out of the run."""
        path = Path(text.removeprefix("file://"))
        leads = path.is_absolute() or text.startswith("~") or ".." in path.parts
        return leads and not (path.is_absolute() and path.resolve().is_relative_to(self.run_dir))


def _texts(value: Any) -> Iterator[str]:
    """All texts and paths in plain values, keys among them."""
    if isinstance(value, str | bytes | Path):
        yield os.fsdecode(value)
    elif isinstance(value, dict | list):
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(entry)


def _is_near(address: str | None) -> bool:
    """Whether the address of a cluster leads to this machine, or is the one of the environment."""
    if address in (None, AUTO, "local", os.environ.get("RAY_ADDRESS")):
        return True
    host = str(address).rpartition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def saved_settings(folder: Path, *, trust: bool = False, dials: bool = True) -> Saved:
    """The settings in the `.hydra` of a run."""
    settings = read_saved(folder / SETTINGS.name)
    return Saved(folder=folder, settings=settings, trust=trust, dials=dials)


def place(group: str) -> int:
    """Where a group stands in conf/config.yaml: a file chooses options of those before its own."""
    return _ORDER.index(group) if group in _ORDER else -1


@contextmanager
def modules_of_a_run(recorded: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a saved run are found where the user's own Python finds any:
    in the current directory, on $PYTHONPATH, among the installed packages. No folder that
    border_cli wrote is on sys.path.

    With `trust` they are found there, too, and in `recorded`, the folders in which the run found
    them. sys.path is as before after it.
    """
    before = list(sys.path)
    if trust:
        add_to_path(recorded)
    else:
        keep_written_folders_off_path()
    add_current_directory(trust=trust)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def opened_run(run_dir: Path, *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a run can be imported, see `modules_of_a_run`."""
    with reachable(CheckpointError):
        recorded = import_paths(run_dir)
    with modules_of_a_run(recorded, trust=trust):
        yield


def load_resolved(
    run_dir: Path, *, trust: bool = False, plays: bool = True, typed: Collection[str] = ()
) -> RunConfig:
    """The RunConfig that a run has saved; typed and checked.

    Imports the modules that it names, of which `typed` need no check; raises ConfigError for what
    a saved folder may not name. Who `plays` no episodes calls nothing of the environment.
    """
    file = settings_of(run_dir)
    if not file.is_file():
        raise CheckpointError(f"{run_dir} is not a run directory: there is no {file}")
    with opened_run(run_dir, trust=trust):
        user_folders()  # calls the plug-ins, which register components
        register_builtin()
        saved = replace(saved_settings(file.parent, trust=trust), dials=False)
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
    files.parts = [Part(file.stem, "", file, OmegaConf.create(settings))]
    chosen = [each for each in map(_entry, settings.pop("defaults")) if each]
    with explained(files, file.stem, ()):
        kinds = {
            each["package"]: GROUPS[each["group"]].entry(each["component"]).config_type
            for each in chosen
        }
        config = with_types(settings, kinds)
        refuse_untyped(config, files.parts)
        return run_settings(config)
