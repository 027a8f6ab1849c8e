"""The saved settings of a run, read again as data, and the modules that they name.

The file may be another's. It is one mapping under the defaults list that we write, without aliases,
tags (except bytes and paths, which Python callers may use), interpolations and Hydra settings.
Anything else is refused with file and line or entry, and no other file of its folder is composed.

The modules of a saved run can execute code, so they come only from the user's own Python, and never
out of the run directory: already imported modules, the current directory, `$PYTHONPATH`, installed
packages. All are located before the first is imported. The run chooses the names, so it can pick
any module available there.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
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
from border_cli.registry import GROUPS, register_builtin
from border_cli.run.status import import_paths
from border_cli.settings.run import RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, read_bytes, settings_of
from border_cli.system.foreign import keep_runs_off_path, refuse_standard, run_of
from border_cli.words import shortest

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


def named_modules(settings: Mapping[str, Any], *, plays: bool = True) -> dict[str, str]:
    """The modules that saved settings lead to, each with the setting that names it; of who plays
    no episodes those of the environment are not among them."""
    found = dict.fromkeys(names_in(settings.get("imports")), "imports")
    if not plays:
        return found
    evaluator = settings.get("evaluator")
    other = evaluator.get("env") if isinstance(evaluator, dict) else None
    # Components of others may write something else before a colon.
    if "/schema/env/gym@env" in settings["defaults"]:
        for place, env in (("env", settings.get("env")), ("evaluator.env", other)):
            for setting, module in modules_of_env(env if isinstance(env, dict) else {}):
                found.setdefault(module, f"{place}.{setting}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run
    settings: dict[str, Any]

    def choosing(self, group: str, option: str = "???") -> Saved:
        """These settings with another option of a group, without the saved values.

        `???` demands a choice, which the command line makes.
        """
        prefix = f"/schema/{group}/"
        entries = [each for each in self.settings["defaults"] if not str(each).startswith(prefix)]
        settings = {**self.settings, "defaults": [*entries[:-1], {group: option}, entries[-1]]}
        settings.pop(group, None)
        return replace(self, settings=settings)


def saved_settings(folder: Path) -> Saved:
    """The settings in the `.hydra` of a run."""
    return Saved(folder=folder, settings=read_saved(folder / SETTINGS.name))


def place(group: str) -> int:
    """Where a group stands in conf/config.yaml: a file chooses options of those before its own."""
    return _ORDER.index(group) if group in _ORDER else -1


@contextmanager
def modules_of_a_run(recorded: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a saved run are found where the user's own Python finds any:
    in the current directory, on $PYTHONPATH, among the installed packages. No run directory is on
    sys.path.

    With `trust` they are found there, too, and in `recorded`, the folders in which the run found
    them. sys.path is as before after it.
    """
    before = list(sys.path)
    if trust:
        add_to_path(recorded)
    else:
        keep_runs_off_path()
    add_current_directory(trust=trust)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def opened_run(run_dir: Path, *, trust: bool, plays: bool = True) -> Iterator[None]:
    """Within the block the modules of a run can be imported, see `modules_of_a_run`.

    Raises ConfigError where its settings name a module that the user's own Python would not find,
    one of `named_modules`; nothing is imported.
    """
    file = settings_of(run_dir)
    with reachable(CheckpointError):
        recorded = import_paths(run_dir)
    with modules_of_a_run(recorded, trust=trust):
        if not trust:
            _refuse_elsewhere(file, named_modules(read_saved(file), plays=plays), recorded)
        yield


def _refuse_elsewhere(file: Path, named: Mapping[str, str], recorded: Sequence[str]) -> None:
    """Refuses modules that an import would not find outside of the run directory.

    `named`: each module with the setting of `file` that names it. `recorded`: the folders in which
    the run found its modules.
    """
    run_dir = run_of(file) or file.parent.resolve()
    for module, setting in named.items():
        refuse_standard(module, f"{shortest(file)}: {setting}")
        if not _is_outside(run_dir, module):
            where = ", ".join(recorded) or "it does not say where"
            raise ConfigError(
                f"{shortest(file)}: {setting} names the module {module!r}. Modules of a run "
                f"are imported from the current directory ({Path.cwd()}), $PYTHONPATH and the "
                "installed packages alone, never from the run directory, and it is not there; "
                f"nothing was imported. The run had found its modules in: {where}. Where you have "
                "its code and trust it: cd to the folder that holds it, or trust=true, typed (from "
                "Python: trust=True), which also looks where the run says"
            )


def _is_outside(run_dir: Path, module: str) -> bool:
    """Whether an import would find a module elsewhere than in the run directory; packages around it
    are imported, each once it was found outside."""
    for name in accumulate(module.split("."), "{}.{}".format):
        if name in sys.modules:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except ImportError:  # what is around it is no package
            return False
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else [run_dir]
        if any(each and Path(each).resolve().is_relative_to(run_dir) for each in places):
            return False
    return True


def load_resolved(run_dir: Path, *, trust: bool = False, plays: bool = True) -> RunConfig:
    """The RunConfig that a run has saved; typed and checked. Imports the modules that it names, see
    `opened_run`."""
    file = settings_of(run_dir)
    if not file.is_file():
        raise CheckpointError(f"{run_dir} is not a run directory: there is no {file}")
    with opened_run(run_dir, trust=trust, plays=plays):
        user_folders()  # calls the plug-ins, which register components
        register_builtin()
        return replace(read_config(file), run_dir=None)


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
