"""The files of one composition, as they are written, and the schemas that they begin with.

Every word of a defaults list counts; Hydra would pass over unknown keywords, and over groups that
no folder has. Schemas are the registry's dataclasses, as `/schema/run` and
`/schema/<group>/<name>`.
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

from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.settings.base import Settings, flat
from border_cli.settings.run import RunConfig
from border_cli.words import shortest, unknown

NAME = "border-train"
BORDER = "border"  # the scheme of our own source, which hands these files to Hydra
STRUCTURED = "structured"  # the scheme of Hydra's own store, which is searched last
HYDRA_SETTINGS = "hydra_settings"  # ours of Hydra itself; every primary configuration has them
TUNED = "tuned"  # the group of the values that agents, and pairs of agent and env, need
OPTIONAL_GROUPS = (TUNED, "experiment")  # whose files are merged at the top
KEYWORDS = ("optional", "override")
SCHEMA = "schema"  # the folder of all schemas
RUN = "run"
# Any key is valid in these, so that `env.kwargs.x=1` needs no `+`.
FREE = (dict[str, Any], dict[str, float], dict[str, float] | None)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration file that took part, in the order of merging."""

    path: str  # agent/dqn
    package: str  # where it was merged: agent; empty is the top
    file: Path | None  # None: a schema, or a pair without a file of its own
    content: Any  # as written, less what does not apply of a tuned file; not merged or resolved


class Files:
    """The files of one composition; owned by the thread that composes."""

    loader: ConfigLoader  # of Hydra, once the files are open

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        saved: ConfigResult | None = None,
    ) -> None:
        """`folders`: as Hydra's URLs, first wins. `config_name`: the primary configuration.
        `saved`: what is served for it instead of a file."""
        self.folders = list(folders)
        self.config_name = config_name
        self.parts: list[ConfigFile] = []  # that take part in the composition under way
        self._edited: dict[str, ConfigResult] = {}
        self._read: dict[str, ConfigResult | None] = {config_name: saved} if saved else {}
        self._lenient = False  # every schema exists: modules may still have to register some

    def open(self, loader: ConfigLoader) -> None:
        """Reads what Hydra's loader has on its search path."""
        self.loader = loader
        self._sources: list[ConfigSource] = list(loader.get_sources())

    def find_parts(
        self, overrides: Sequence[str], *, lenient: bool = False, again: bool = False
    ) -> Mapping[str, Any]:
        """Finds the files that take part, as `parts`; returns the options that were chosen.

        What an earlier composition edited is forgotten, unless this is the same one `again`. If it
        is `lenient`, every schema exists.
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
            found = self.read(default.config_path)
            content = found.config if found else OmegaConf.create()
            file = file_of(found.path, default.config_path) if found else None
            part = ConfigFile(default.config_path, default.package or "", file, content)
            self.parts.append(part)
        choices: Mapping[str, Any] = listed.overrides.override_choices
        return choices

    def served(self, path: str) -> ConfigResult | None:
        """The file that Hydra gets for a path; None where the next source decides.

        A pair without a tuned file has an empty one, so that its place among the defaults is
        known: files of the agent stand there, too.
        """
        if path.startswith(f"{SCHEMA}/"):
            known = schema(path)
            if known is None and self._lenient:
                known = OmegaConf.create()
            return None if known is None else ConfigResult(NAME, "", known, {"package": None})
        found = self.read(path)
        if found is None and path.startswith(f"{TUNED}/"):
            return ConfigResult(NAME, "", OmegaConf.create(), {"package": "_global_"})
        return found

    def edited(self, path: str) -> ConfigResult:
        """What is served for a path, as a copy that is served from now on: it may be changed."""
        found = self.served(path)
        assert found is not None
        self._edited[path] = replace(found, config=deepcopy(found.config))
        return self._edited[path]

    def read(self, path: str) -> ConfigResult | None:
        """A file as it is written, its defaults list included; copy it before it is changed."""
        if path in self._edited:
            return self._edited[path]
        if path not in self._read:
            source = self._source_of(path)
            if source is None or source.scheme() == STRUCTURED:
                self._read[path] = None
            else:
                self._read[path] = self._checked(path, source.load_config(path))
        return self._read[path]

    def _checked(self, path: str, found: ConfigResult) -> ConfigResult:
        """Refuses unknown words of a defaults list, and named tuned files that are not there.

        A file of a group gets its name as `option`: the settings keep it, wherever they go.
        """
        group, _, name = path.partition("/")
        if group == "hydra" or not isinstance(found.config, DictConfig):
            return found
        for entry in entries_of(path, found.config):
            said = self._unmeant(entry)
            if said:
                file = file_of(found.path, path)
                raise ConfigError(f"{shortest(file) if file else path}: {said}")
        one = group in GROUPS and not takes_several(group)
        if one and "option" not in found.config:
            found = replace(found, config=deepcopy(found.config))
            found.config["option"] = name
        return found

    def _unmeant(self, entry: DefaultsEntry) -> str:
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
        sources = (each for each in self._sources if each.scheme() != BORDER)
        return next((each for each in sources if each.is_config(path)), None)

    def exists(self, path: str) -> bool:
        """Whether there is a file `agent/dqn`."""
        return self._source_of(path) is not None

    def group_exists(self, group: str) -> bool:
        """Whether there is a folder of that name anywhere."""
        return any(each.is_group(group) for each in self._sources)

    def options(self, group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
        """All that a group offers, in all folders."""
        sources = [each for each in self._sources if each.is_group(group)]
        return sorted({name for each in sources for name in each.list(group, kind)})

    def primary_configs(self) -> list[str]:
        """All that a command may begin with: `config` and files of the user."""
        hidden = (HYDRA_SETTINGS, "_dummy_empty_config_")
        return [
            each for each in self.options("") if each not in hidden and not each.startswith("_")
        ]

    def file(self, path: str) -> Path | None:
        """The file of `agent/dqn`; None for a schema."""
        found = self.read(path)
        return file_of(found.path, path) if found else None

    def searched(self) -> list[str]:
        """The folders searched, but for Hydra's own."""
        hidden = ("hydra", SCHEMA, NAME)
        return [each.path for each in self._sources if each.provider not in hidden]


def file_of(source: str, path: str) -> Path | None:
    """The file of `agent/dqn` in `file://FOLDER` or `pkg://package`; None for a schema."""
    scheme, _, folder = source.partition("://")
    if scheme == "file":
        return Path(f"{folder}/{path}.yaml")
    if scheme == "pkg":
        return Path(str(importlib.resources.files(folder).joinpath(f"{path}.yaml")))
    return None


class DefaultsEntry(NamedTuple):
    """An entry of a defaults list that chooses the option of a group."""

    key: str  # as written: `override /env@env`
    keywords: list[str]
    group: str  # its path from the top
    option: Any


def entries_of(path: str, content: Any) -> Iterator[DefaultsEntry]:
    """The entries of a file's defaults list that choose the option of a group."""
    listed = content.get("defaults") if isinstance(content, DictConfig) else None
    entries: Any = OmegaConf.to_container(listed, resolve=False) if listed else []
    for entry in entries:
        for key, option in entry.items() if isinstance(entry, dict) else ():
            *keywords, group = str(key).partition("@")[0].split()
            yield DefaultsEntry(str(key), keywords, absolute(path, group), option)


def overridden(path: str, content: Any) -> dict[str, Any]:
    """The groups of which the defaults list of a file overrides the option, each with that."""
    entries = entries_of(path, content)
    return {each.group: each.option for each in entries if "override" in each.keywords}


def absolute(config_path: str, group: str) -> str:
    """The path of an entry of a defaults list, which may be relative to its file."""
    folder = config_path.rpartition("/")[0]
    return group[1:] if group.startswith("/") else f"{folder}/{group}".lstrip("/")


def settings_in(value: object, path: str) -> set[str]:
    """The settings of groups that a file, or what is typed for a path, sets to more than null."""
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value, resolve=False)
    keys = [key for key, each in flat(value, path).items() if each is not None]
    return {".".join(key.split(".")[:2]) for key in keys}  # of a schedule, its setting


def takes_several(group: str) -> bool:
    """Whether a run may have several components of a group."""
    return group in GROUPS and get_origin(get_type_hints(RunConfig)[group]) is dict


@cache
def base_of(group: str) -> type[Settings]:
    """The class that the settings of each option of a group extend, or of a section its class."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Settings] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


def schema(path: str) -> DictConfig | None:
    """The schema `schema/agent/dqn`, if there is one; copy it before it is changed."""
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
    """The schema of a component, or of a run. A composition asks for about ten of the thirty
    components, and to make one takes milliseconds."""
    node: DictConfig = OmegaConf.structured(kind)
    hints = get_type_hints(kind)
    for each in fields(kind):
        child = node._get_node(each.name)
        free = hints[each.name] in FREE or each.metadata.get("counter")  # a schedule
        if free and isinstance(child, DictConfig):
            child._set_flag("struct", False)
    return node
