"""All that Hydra reads in a composition, by its public interface.

Hydra's search path is that of the composition under way, and a source of ours stands in front of
it: it reads each file once, makes schemas on demand, and serves what a composition makes itself,
which are saved settings and tuned values. Every word of a defaults list counts; Hydra would pass
over unknown keywords, and over groups that no folder has.
"""

from __future__ import annotations

import importlib.resources
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import hydra
from hydra import initialize_config_module
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from border_cli.config import schemas
from border_cli.config.search_path import OURS
from border_cli.errors import ConfigError
from border_cli.hydra_plugin import register as register_launchers
from border_cli.registry import GROUPS, register_builtin
from border_cli.settings.base import flat
from border_cli.system.files import SETTINGS
from border_cli.words import shortest, unknown

if TYPE_CHECKING:
    from border_cli.config.saved_names import SavedSettings

NAME = "border-train"
TUNED = "tuned"  # the group of the values that agents, and pairs of agent and env, need
OPTIONAL_GROUPS = (TUNED, "experiment")  # whose files are merged at the top
HYDRA_SETTINGS = "hydra_settings"  # ours of Hydra itself; every primary configuration has them
KEYWORDS = ("optional", "override")
STRUCTURED = "structured"  # the scheme of Hydra's own store, which is searched last
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}

# Hydra keeps its state per process; compositions take turns.
_turn = RLock()
_under_way: ContextVar[Files | None] = ContextVar("_under_way", default=None)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration file that took part, in the order of merging."""

    path: str  # agent/dqn
    package: str  # where it was merged: agent; empty is the top
    file: Path | None  # None: a schema, or a pair without a file of its own
    content: Any  # as written, less what does not apply of a tuned file; not merged or resolved
    general: bool = False  # a tuned file of the agent, or of a family of envs, not of a pair


class Files:
    """The files of one composition; owned by the thread that composes."""

    loader: ConfigLoader  # of Hydra, once the files are open

    def __init__(self, folders: Sequence[str] = (), saved: SavedSettings | None = None) -> None:
        """`folders`: as Hydra's URLs, first wins. `saved`: settings that stand for a file."""
        self.folders = list(folders)
        self.saved = saved
        self._given: dict[str, ConfigResult] = {}
        if saved is not None:
            content = OmegaConf.create(saved.settings)
            found = ConfigResult("user", f"file://{saved.folder}", content, {"package": None})
            self._given[SETTINGS.stem] = found
        self.made = dict(self._given)
        self.parts: list[ConfigFile] = []
        self.lenient = False  # every schema exists: modules that register some are not imported yet
        self._sources: list[ConfigSource] = []
        self._found: dict[str, ConfigResult | None] = {}
        # The last answer of Hydra, by what was asked.
        self._listed: dict[tuple[str, ...], tuple[list[ConfigFile], Mapping[str, Any]]] = {}

    def open(self, loader: ConfigLoader) -> None:
        """Reads what Hydra's loader has on its search path."""
        self.loader = loader
        self._sources = list(loader.get_sources())

    def read(self, path: str) -> ConfigResult | None:
        """A file as it is written, its defaults list included; copy it before it is changed."""
        if path in self.made:
            return self.made[path]
        if path not in self._found:
            self._found[path] = self._read(path)
        return self._found[path]

    def _read(self, path: str) -> ConfigResult | None:
        source = self._source_of(path)
        if source is None or source.scheme() == STRUCTURED:
            return None
        found = source.load_config(path)
        if not path.startswith("hydra/"):
            self._refuse_unmeant(path, found)
        return _with_option(path, found)

    def served(self, path: str) -> ConfigResult | None:
        """The file that Hydra gets for a path; None where the next source decides.

        A pair without a tuned file has an empty one, so that its place among the defaults is
        known: files of the agent stand there, too.
        """
        if path.startswith(f"{schemas.SCHEMA}/"):
            known = schemas.names_schema(path)
            blank = OmegaConf.create() if self.lenient else None
            return _made(schemas.schema(path) if known else blank)
        found = self.read(path)
        if found is None and path.startswith(f"{TUNED}/"):
            return _made(OmegaConf.create(), package="_global_")
        return found

    def exists(self, path: str) -> bool:
        """Whether there is a file `agent/dqn`."""
        return path in self.made or self._source_of(path) is not None

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
        hidden = ("hydra", "schema", NAME)
        return [each.path for each in self._sources if each.provider not in hidden]

    def find_parts(self, config_name: str, overrides: Sequence[str]) -> Mapping[str, Any]:
        """Finds the files that take part, as `parts`; returns the options that were chosen.

        What an earlier composition made is forgotten.
        """
        self.made = dict(self._given)
        asked = (config_name, *overrides)
        if asked not in self._listed:
            self.parts = []
            chosen: Any = self.loader.compute_defaults_list(
                config_name, list(overrides), RunMode.MULTIRUN
            )
            parts = [self._part(each.config_path, each.package) for each in chosen.defaults]
            self._listed = {asked: (parts, chosen.overrides.override_choices)}
        parts, choices = self._listed[asked]
        self.parts = list(parts)
        return choices

    def copied(self, path: str) -> ConfigResult:
        """What is served for a path, as a copy that is served from now on: it may be changed."""
        found = self.served(path)
        assert found is not None
        self.made[path] = replace(found, config=deepcopy(found.config))
        return self.made[path]

    def forget_parts(self) -> None:
        """Finds them once more: modules were imported, which may have registered something."""
        self._listed.clear()

    def _part(self, path: str, package: str | None) -> ConfigFile:
        found = self.read(path)
        content = found.config if found else OmegaConf.create()
        return ConfigFile(
            path, package or "", file_of(found.path, path) if found else None, content
        )

    def _source_of(self, path: str) -> ConfigSource | None:
        sources = (each for each in self._sources if each.scheme() != _Reader.scheme())
        return next((each for each in sources if each.is_config(path)), None)

    def _refuse_unmeant(self, path: str, found: ConfigResult) -> None:
        """Refuses unknown words of a defaults list, and named tuned files that are not there."""
        listed = found.config.get("defaults") if isinstance(found.config, DictConfig) else None
        entries: Any = OmegaConf.to_container(listed, resolve=False) if listed else []
        for entry in entries:
            for key, value in entry.items() if isinstance(entry, dict) else ():
                said = self._unmeant(path, str(key), value)
                if said:
                    file = file_of(found.path, path)
                    raise ConfigError(f"{shortest(file) if file else path}: {said}")

    def _unmeant(self, path: str, key: str, value: object) -> str:
        *keywords, named = key.partition("@")[0].split()
        for word in keywords:
            if word not in KEYWORDS:
                return f"`{key}: …`: {unknown('keyword', word, KEYWORDS)}"
        group = absolute(path, named)
        if "override" not in keywords and not self.group_exists(group):
            return unknown("group", group, self.options("", ObjectType.GROUP))
        fixed = isinstance(value, str) and "${" not in value and "optional" not in keywords
        if group == TUNED and fixed and not self.exists(f"{TUNED}/{value}"):
            return unknown(TUNED, value, self.options(TUNED))
        return ""


def _with_option(path: str, found: ConfigResult) -> ConfigResult:
    """A file of a group with its name as `option`: the settings keep it, wherever they go."""
    group, _, name = path.partition("/")
    one = group in GROUPS and not schemas.takes_several(group)
    if not one or not isinstance(found.config, DictConfig) or "option" in found.config:
        return found
    config = deepcopy(found.config)
    config["option"] = name
    return replace(found, config=config)


def _made(config: DictConfig | None, package: str | None = None) -> ConfigResult | None:
    return ConfigResult(NAME, "", config, {"package": package}) if config is not None else None


class _Reader(ConfigSource):
    """Hands the composition under way to Hydra, which makes and copies its sources as it likes."""

    @staticmethod
    def scheme() -> str:
        return "border"

    def load_config(self, config_path: str) -> ConfigResult:
        found = _files().served(config_path)
        assert found is not None
        return deepcopy(found)  # Hydra takes the defaults list out

    def is_group(self, config_path: str) -> bool:
        folder, group, option = schemas.parts_of(config_path.rstrip("/"))
        return folder == schemas.SCHEMA and not group and (not option or option in GROUPS)

    def is_config(self, config_path: str) -> bool:
        return _files().served(config_path) is not None

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        configs, groups = schemas.schemas_in(config_path.rstrip("/"))
        found = {ObjectType.CONFIG: configs, ObjectType.GROUP: groups}
        return [*found[results_filter]] if results_filter else sorted([*configs, *groups])


class _Folders(SearchPathPlugin):
    """Puts the folders of the composition under way in front of ours; in a Hydra application of
    others there is none."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        files = _under_way.get()
        if files is None:
            return
        for folder in files.folders:
            search_path.prepend("user", folder, anchor="main")
        search_path.prepend(NAME, f"{_Reader.scheme()}://")


def _files() -> Files:
    files = _under_way.get()
    assert files is not None
    return files


@contextmanager
def opened(folders: Sequence[str] = (), saved: SavedSettings | None = None) -> Iterator[Files]:
    """Within the block Hydra reads these files; its own state is as before afterwards, also inside
    another Hydra application and in threads."""
    files = Files(folders, saved)
    with _turn:
        find_plugins()
        singleton, runtime, version = GlobalHydra.instance(), JobRuntime.instance(), VersionBase()
        app, name, base = singleton.hydra, runtime.get("name"), version.version_base
        told = HydraConfig.instance()
        config = told.cfg
        singleton.clear()
        token = _under_way.set(files)
        try:
            with initialize_config_module(OURS, job_name=NAME, **VERSION_BASE):
                files.open(GlobalHydra.instance().config_loader())
                yield files
        finally:
            _under_way.reset(token)
            GlobalHydra.set_instance(singleton)
            singleton.hydra, version.version_base, told.cfg = app, base, config
            runtime.set("name", name)


def find_plugins() -> None:
    """Has Hydra import its plug-ins, the first time, and registers ours."""
    with warnings.catch_warnings():
        # Of ours, where this package is installed as editable.
        warnings.filterwarnings("ignore", ".*in an editable hydra_plugins namespace install")
        plugins = Plugins.instance()
    for each in (_Reader, _Folders):
        plugins.register(each)
    register_launchers()
    register_builtin()


def settings_in(value: object, path: str) -> set[str]:
    """The settings of groups that a file, or what is typed for a path, sets to more than null."""
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value, resolve=False)
    keys = [key for key, each in flat(value, path).items() if each is not None]
    return {".".join(key.split(".")[:2]) for key in keys}  # of a schedule, its setting


def chosen_options(path: str, content: Any) -> list[tuple[str, Any]]:
    """The groups of which the defaults list of a file overrides the option, each with that."""
    listed = content.get("defaults") if isinstance(content, DictConfig) else None
    entries: Any = OmegaConf.to_container(listed, resolve=False) if listed else []
    chosen = []
    for entry in entries:
        for key, option in entry.items() if isinstance(entry, dict) else ():
            *keywords, group = str(key).partition("@")[0].split()
            if "override" in keywords:
                chosen.append((absolute(path, group), option))
    return chosen


def absolute(config_path: str, group: str) -> str:
    """The path of an entry of a defaults list, which may be relative to its file."""
    folder = config_path.rpartition("/")[0]
    return group[1:] if group.startswith("/") else f"{folder}/{group}".lstrip("/")


def file_of(source: str, path: str) -> Path | None:
    """The file of `agent/dqn` in `file://FOLDER` or `pkg://package`; None for a schema."""
    scheme, _, folder = source.partition("://")
    if scheme == "file":
        return Path(f"{folder}/{path}.yaml")
    if scheme == "pkg":
        return Path(str(importlib.resources.files(folder).joinpath(f"{path}.yaml")))
    return None
