"""The saved settings of a run: written with their types, so that they run again by themselves, and
read again as data, as the settings of a run or the primary configuration of a command.

The file may be another's. It is one mapping under the defaults list that we write, without aliases,
tags (except bytes and paths, which Python callers may use), interpolations and Hydra settings; `${`
in a value is written escaped. Anything else is refused with file and line or entry, and no other
file of its folder is composed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.check import explained, refuse_untyped, run_settings, with_types
from border_cli.config.imports import (
    import_modules,
    modules_of_a_run,
    names_in,
    refuse_elsewhere,
)
from border_cli.config.interpolation import plain
from border_cli.config.search_path import user_folders
from border_cli.config.sources import Files, Part
from border_cli.errors import CheckpointError, ConfigError
from border_cli.registry import GROUPS, register_builtin
from border_cli.settings.run import RecorderConfig, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, read_bytes, write_text

HEADER = "# All settings of one run. `border-train -cd FOLDER -cn NAME` runs this file again.\n"
BEFORE = "resolved-before.yaml"
_ORDER = ("evaluator", "recorder", "env", "agent", "trainer")  # the other groups come before
_OURS = ("/schema/run@_here_", "/hydra_settings", "_self_")  # of every saved defaults list
_ENTRY = re.compile(
    r"/schema/(?P<group>\w+)/(?P<component>[^/@\s]+)@(?P<package>(?P=group)(\.[^@\s]+)?)"
)
_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # unless it is escaped


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]
    """Writes as OmegaConf does, six times as fast where PyYAML has its C library: of a sweep with
    200 jobs, that took three of five seconds before the first one starts."""


def _represented(dumper: Any, text: str) -> Any:
    """OmegaConf reads `1e3` as a number, so that a text is quoted."""
    try:
        float(text)
    except ValueError:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")


_Dumper.add_representer(str, _represented)


def yaml_text(content: object) -> str:
    """Plain values as YAML, the same that `OmegaConf.to_yaml` gives."""
    how = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.dump(content, Dumper=_Dumper, **how)
    return text


def resolved_yaml(config: RunConfig) -> str:
    """All values with their types: a file that runs again by itself, wherever it is put.

    Where this one run was written, and how it was asked for, is no part of it.
    """
    entries = [*_OURS[:2], *_typed_entries(config), _OURS[2]]
    listed = "".join(f"- {entry}\n" for entry in entries)
    values = {**plain(config), "run_dir": None, "resume": None, "dry_run": False}
    return f"{HEADER}defaults:\n{listed}{yaml_text(values)}"


def _typed_entries(config: RunConfig) -> list[str]:
    entries = []
    for each in fields(config):
        chosen = getattr(config, each.name)
        if each.name not in GROUPS:
            continue
        members = chosen if isinstance(chosen, dict) else {"": chosen}
        for key, settings in members.items():
            name = GROUPS[each.name].entry_of(settings).name
            package = f"{each.name}.{key}" if isinstance(settings, RecorderConfig) else each.name
            entries.append(f"/schema/{each.name}/{name}@{package}")
    return entries


def write_resolved(run_dir: Path, text: str) -> Path:
    """Saves the text of `resolved_yaml` in a run directory."""
    path = run_dir / SETTINGS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def begin_attempt(run_dir: Path, record: Mapping[str, str], text: str) -> None:
    """Saves how an attempt was asked for, as files and texts, and its settings: of a first one in
    `.hydra`, of a later one in `.hydra/resume-<n>`, with the settings that these replace."""
    saved = run_dir / SETTINGS
    before = saved.read_text(encoding="utf-8") if saved.is_file() else text
    files = {**record, **({BEFORE: before} if before != text else {})}
    saved.parent.mkdir(exist_ok=True)
    folder, number = saved.parent, 1
    if files and any(folder.iterdir()):
        while os.path.lexists(folder / f"resume-{number}"):
            number += 1
        folder = folder / f"resume-{number}"
        folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    write_resolved(run_dir, text)


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
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except (OmegaConfBaseException, ValueError, RecursionError) as error:
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
    if not isinstance(found, dict) or not isinstance(entries, list):
        raise ConfigError(f"{file} is not a saved configuration: it has no defaults list")
    if "hydra" in found:
        raise ConfigError(
            f"{file}: Hydra settings (`hydra:`) are not read from a run: they decide which files "
            "are written, and a run never saves any"
        )
    _refuse_interpolations(file, found)
    for entry in entries:
        form = _entry(entry)
        if entry not in _OURS and not (form and form["group"] in GROUPS):
            raise ConfigError(f"{file}: its defaults list has {entry!r}, which a run never saves")
    return {str(key): value for key, value in found.items()}


def _entry(listed: object) -> re.Match[str] | None:
    """The schema that an entry of a defaults list chooses."""
    return _ENTRY.fullmatch(listed) if isinstance(listed, str) else None


def saved_options(settings: Mapping[str, Any]) -> dict[str, str]:
    """The option that was chosen of each group, or its component where none was; of recorders the
    last."""
    entries = filter(None, map(_entry, settings["defaults"]))
    components = {each["group"]: each["component"] for each in entries}
    groups = {group: each for group, each in settings.items() if isinstance(each, dict)}
    options = {group: each["option"] for group, each in groups.items() if each.get("option")}
    return {**components, **options}


def named_modules(settings: Mapping[str, Any]) -> dict[str, str]:
    """The modules that saved settings lead to, each with the setting that names it."""
    listed = settings.get("imports")
    found = {str(each): "imports" for each in (listed if isinstance(listed, list) else [])}
    evaluator = settings.get("evaluator")
    other = evaluator.get("env") if isinstance(evaluator, dict) else None
    # Components of others may write something else before a colon.
    if "/schema/env/gym@env" in settings["defaults"]:
        for place, env in (("env", settings.get("env")), ("evaluator.env", other)):
            for setting, module in modules_of_env(env if isinstance(env, dict) else {}):
                found.setdefault(module, f"{place}.{setting}")
    return found


def modules_of(config: RunConfig) -> list[str]:
    """The modules that the settings of a run lead to."""
    envs = (vars(config.env), config.evaluator.env)
    named = [module for env in envs for _, module in modules_of_env(env)]
    return list(dict.fromkeys([*config.imports, *named]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run
    settings: dict[str, Any]

    def with_values(self, values: Mapping[str, str]) -> Saved:
        """These settings with other values; a key may name a setting of a group."""
        content = OmegaConf.create(self.settings)
        for key, value in values.items():
            OmegaConf.update(content, key, value)
        settings: Any = OmegaConf.to_container(content, resolve=False)
        return replace(self, settings=settings)

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


def resumed_settings(run_dir: Path, overrides: Sequence[Override]) -> Saved:
    """The saved settings of a run as those that it is resumed with: the groups that a choice is
    typed of are chosen anew; one that is added to a list chooses nothing anew."""
    saved = saved_settings((run_dir / SETTINGS).parent).with_values({"run_dir": str(run_dir)})
    chosen = {
        each.key_or_group
        for each in overrides
        if each.key_or_group in GROUPS
        and not (each.is_delete() or each.is_add() or each.is_sweep_override())
        and not isinstance(each.value(), dict)
    }
    for group in sorted(chosen, key=place):
        saved = saved.choosing(group)
    return saved


def refuse_strange_modules(file: Path, recorded: Sequence[str]) -> None:
    """Raises ConfigError where saved settings name a module that the user's own Python would not
    find; nothing is imported. `recorded`: the folders in which the run found its modules."""
    refuse_elsewhere(file, named_modules(read_saved(file)), recorded)


def load_resolved(
    path: Path, import_paths: Sequence[str] = (), *, trust: bool = False
) -> RunConfig:
    """The RunConfig of a saved file, or of the run directory that holds one; typed and checked.

    Imports the modules that it names where the user's own Python finds them, and with `trust` in
    `import_paths`, the folders in which the run found them. See `refuse_strange_modules`.
    """
    file = path / SETTINGS if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(f"{path} is not a run directory: there is no {file}")
    with modules_of_a_run(import_paths, trust=trust):
        if not trust:
            refuse_strange_modules(file, import_paths)
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
        entries = {
            each["package"]: GROUPS[each["group"]].entry(each["component"]) for each in chosen
        }
        kinds = {place: entry.config_type for place, entry in entries.items()}
        config = with_types(settings, kinds)
        refuse_untyped(config, files.parts)
        return run_settings(config)
