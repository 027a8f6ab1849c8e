"""The config files of one composition, as written, and the schemas that they start with.

Unknown keywords and groups in a defaults list are refused; Hydra ignores them. Schemas are created
from the registry's dataclasses, with the paths `/schema/run` and `/schema/<group>/<name>`.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from border_cli.config.search_path import OURS
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.settings.base import Settings, flat
from border_cli.settings.run import RunConfig
from border_cli.words import shortest, unknown

NAME = "border-train"
BORDER = "border"  # URL scheme of our config source, which serves these files to Hydra
STRUCTURED = "structured"  # URL scheme of Hydra's ConfigStore, which is searched last
HYDRA_SETTINGS = "hydra_settings"  # our settings for Hydra itself, in every primary config
TUNED = "tuned"  # group of tuned values for agents and for pairs of agent and env
OPTIONAL_GROUPS = (TUNED, "experiment")  # groups whose files are merged at the top level
KEYWORDS = ("optional", "override")
SCHEMA = "schema"  # folder of all schemas
RUN = "run"
SHIPPED = (f"pkg://{OURS}", "pkg://hydra.conf")  # these never change while a process runs
# Settings of these types accept any key, so that `env.kwargs.x=1` needs no `+`.
FREE = (dict[str, Any], dict[str, float], dict[str, float] | None)

_shipped: dict[tuple[str, str], ConfigResult] = {}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file that takes part in a composition."""

    path: str  # config path, such as agent/dqn
    package: str  # where it is merged, such as agent; empty for the top level
    file: Path | None  # None for a schema, and for a pair without a tuned file
    content: Any  # as written, without tuned values that do not apply; not merged, not resolved


class Files:
    """The config files of one composition; owned by the composing thread."""

    loader: ConfigLoader  # Hydra's loader, set by `open`

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        saved: ConfigResult | None = None,
    ) -> None:
        """`folders`: Hydra URLs, highest precedence first. `config_name`: the primary config.
        `saved`: its content, if not read from a file."""
        self.folders = list(folders)
        self.config_name = config_name
        self.parts: list[ConfigFile] = []  # files of the current composition, in merge order
        self._edited: dict[str, ConfigResult] = {}
        self._read: dict[str, ConfigResult | None] = {config_name: saved} if saved else {}
        self._lenient = False  # whether to accept unknown schemas, which modules may register later

    def open(self, loader: ConfigLoader) -> None:
        """Stores Hydra's loader and the sources on its search path."""
        self.loader = loader
        self._sources: list[ConfigSource] = list(loader.get_sources())

    def find_parts(
        self, overrides: Sequence[str], *, lenient: bool = False, again: bool = False
    ) -> Mapping[str, Any]:
        """Finds the files that take part, stores them in `parts` and returns the chosen options.

        Discards all edits, unless the same composition is computed `again`. `lenient` accepts
        schemas that are not registered.
        """
        self.parts, self._lenient = [], lenient
        if not again:
            self._edited = {}
        try:
            listed: Any = self.loader.compute_defaults_list(
                self.config_name, list(overrides), RunMode.MULTIRUN
            )
        finally:
            self._lenient = False
        for default in listed.defaults:
            result = self.read(default.config_path)
            content = result.config if result else OmegaConf.create()
            file = file_of(result.path, default.config_path) if result else None
            part = ConfigFile(default.config_path, default.package or "", file, content)
            self.parts.append(part)
        choices: Mapping[str, Any] = listed.overrides.override_choices
        return choices

    def serve(self, path: str) -> ConfigResult | None:
        """Returns the config that Hydra receives for a path; None to try the next source.

        A missing tuned file is served as an empty one, which marks its position in the defaults
        list: the agent's tuned files are inserted there.
        """
        if path.startswith(f"{SCHEMA}/"):
            node = schema(path)
            if node is None and self._lenient:
                node = OmegaConf.create()
            return None if node is None else ConfigResult(NAME, "", node, {"package": None})
        result = self.read(path)
        if result is None and path.startswith(f"{TUNED}/"):
            return ConfigResult(NAME, "", OmegaConf.create(), {"package": "_global_"})
        return result

    def serve_saved(self, saved: ConfigResult) -> None:
        """Replaces the content of the primary config."""
        self._read[self.config_name] = saved

    def edit_file(self, path: str) -> ConfigResult:
        """Returns an editable copy of the config served for a path; the copy is served instead."""
        result = self.serve(path)
        assert result is not None
        self._edited[path] = replace(result, config=deepcopy(result.config))
        return self._edited[path]

    def read(self, path: str) -> ConfigResult | None:
        """Reads a file as written, including its defaults list. Copy the result to change it."""
        if path in self._edited:
            return self._edited[path]
        if path not in self._read:
            source = self._source_of(path)
            if source is None or source.scheme() == STRUCTURED:
                self._read[path] = None
            elif source.full_path() in SHIPPED:
                self._read[path] = load_shipped(source, path)
            else:
                result = load(source, path)
                self._refuse_mistakes(path, result)
                self._read[path] = result
        return self._read[path]

    def _refuse_mistakes(self, path: str, result: ConfigResult) -> None:
        """Refuses unknown keywords and groups in a defaults list, and missing tuned files."""
        if path.startswith("hydra/"):
            return
        for entry in entries_of(path, result.config):
            mistake = self._find_mistake(entry)
            if mistake:
                file = file_of(result.path, path)
                raise ConfigError(f"{shortest(file) if file else path}: {mistake}")

    def _find_mistake(self, entry: DefaultsEntry) -> str:
        for word in entry.keywords:
            if word not in KEYWORDS:
                return f"`{entry.key}: …`: {unknown('keyword', word, KEYWORDS)}"
        if "override" not in entry.keywords and not self.group_exists(entry.group):
            return unknown("group", entry.group, self.options("", ObjectType.GROUP))
        option = entry.option if isinstance(entry.option, str) else "${"
        fixed = "${" not in option and "optional" not in entry.keywords
        if entry.group == TUNED and fixed and not self.exists(f"{TUNED}/{option}"):
            return unknown(TUNED, option, self.options(TUNED))
        return ""

    def _source_of(self, path: str) -> ConfigSource | None:
        sources = (source for source in self._sources if source.scheme() != BORDER)
        return next((source for source in sources if source.is_config(path)), None)

    def exists(self, path: str) -> bool:
        """Returns whether there is a file for a path such as `agent/dqn`."""
        return self._source_of(path) is not None

    def group_exists(self, group: str) -> bool:
        """Returns whether any source has this group."""
        return any(source.is_group(group) for source in self._sources)

    def options(self, group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
        """Returns the names of all options of a group, from all sources."""
        sources = [source for source in self._sources if source.is_group(group)]
        return sorted({name for source in sources for name in source.list(group, kind)})

    def primary_configs(self) -> list[str]:
        """Returns the names of all primary configs: `config` and the user's own."""
        return [
            name for name in self.options("") if name != HYDRA_SETTINGS and not name.startswith("_")
        ]

    def file(self, path: str) -> Path | None:
        """Returns the file of a path such as `agent/dqn`; None for a schema."""
        result = self.read(path)
        return file_of(result.path, path) if result else None

    def searched(self) -> list[str]:
        """Returns the folders on the search path, except Hydra's own."""
        hidden = ("hydra", "schema", NAME)  # providers of Hydra and of our own source
        return [source.path for source in self._sources if source.provider not in hidden]


def load(source: ConfigSource, path: str) -> ConfigResult:
    """Loads a file, and adds its name to the settings of its group, as `option`."""
    result = source.load_config(path)
    group, _, name = path.partition("/")
    is_single = group in GROUPS and not takes_several(group)
    if is_single and isinstance(result.config, DictConfig) and "option" not in result.config:
        result = replace(result, config=deepcopy(result.config))
        result.config["option"] = name
    return result


def load_shipped(source: ConfigSource, path: str) -> ConfigResult:
    """Loads a file of ours or of Hydra's, once per process. Copy the result to change it."""
    key = (source.full_path(), path)
    if key not in _shipped:
        _shipped[key] = load(source, path)
    return _shipped[key]


def file_of(source: str, path: str) -> Path | None:
    """Returns the file of `agent/dqn` in `file://FOLDER` or `pkg://package`; None for a schema."""
    scheme, _, folder = source.partition("://")
    if scheme == "file":
        return Path(f"{folder}/{path}.yaml")
    if scheme == "pkg":
        return Path(str(importlib.resources.files(folder).joinpath(f"{path}.yaml")))
    return None


class DefaultsEntry(NamedTuple):
    """A defaults-list entry that chooses an option of a group."""

    key: str  # as written, such as `override /env@env`
    keywords: list[str]
    group: str  # absolute path
    option: Any


def entries_of(path: str, content: Any) -> Iterator[DefaultsEntry]:
    """Yields the entries of a file's defaults list that choose an option of a group."""
    listed = content.get("defaults") if isinstance(content, DictConfig) else None
    entries: Any = OmegaConf.to_container(listed, resolve=False) if listed else []
    for entry in entries:
        for key, option in entry.items() if isinstance(entry, dict) else ():
            *keywords, group = str(key).partition("@")[0].split()
            yield DefaultsEntry(str(key), keywords, absolute(path, group), option)


def overridden(path: str, content: Any) -> dict[str, Any]:
    """Returns the options that a file's defaults list overrides, by group."""
    entries = entries_of(path, content)
    return {entry.group: entry.option for entry in entries if "override" in entry.keywords}


def absolute(config_path: str, group: str) -> str:
    """Returns the absolute path of a group, which a defaults list may give relative to its file."""
    folder = config_path.rpartition("/")[0]
    return group[1:] if group.startswith("/") else f"{folder}/{group}".lstrip("/")


def settings_in(value: object, path: str) -> set[str]:
    """Returns the settings that a file, or an override of `path`, sets to anything but null."""
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value, resolve=False)
    keys = [key for key, entry in flat(value, path).items() if entry is not None]
    return {".".join(key.split(".")[:2]) for key in keys}  # without keys of schedules


def takes_several(group: str) -> bool:
    """Returns whether a run may have several components of a group."""
    return group in GROUPS and get_origin(get_type_hints(RunConfig)[group]) is dict


@cache
def base_of(group: str) -> type[Settings]:
    """Returns the base class of the settings of a group, or the class of a section."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Settings] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


def schema(path: str) -> DictConfig | None:
    """Returns the schema `schema/agent/dqn`, or None if there is none. Copy it to change it."""
    _, _, rest = path.partition("/")
    group, _, option = rest.partition("/")
    if rest == RUN:
        return schema_of(RunConfig)
    if group not in GROUPS or option not in GROUPS[group].names():
        return None
    kind: Any = GROUPS[group].entry(option).config_type
    return schema_of(kind)


@cache
def schema_of(kind: Any) -> DictConfig:
    """Returns the schema of a component or of a run. Cached, because creating one takes
    milliseconds and a composition needs about ten."""
    node: DictConfig = OmegaConf.structured(kind)
    hints = get_type_hints(kind)
    for item in fields(kind):
        child = node._get_node(item.name)
        is_free = hints[item.name] in FREE or item.metadata.get("counter")  # or a schedule
        if is_free and isinstance(child, DictConfig):
            child._set_flag("struct", False)
    return node
