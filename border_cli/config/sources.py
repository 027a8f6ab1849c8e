"""What Hydra reads besides plain files: the registry's dataclasses as schemas, `/schema/run` and
`/schema/<group>/<name>`, and defaults lists in which every word counts."""

from __future__ import annotations

import importlib.resources
from copy import deepcopy
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from hydra._internal.config_repository import ConfigRepository
from hydra.core.default_element import InputDefault
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf

from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.words import unknown
from border_cli.registry import GROUPS, Entry

SCHEMA = "schema"  # the folder of all schemas
RUN = "run"
KEYWORDS = ("optional", "override")
TUNED = "tuned"  # the group of the values that agents, and pairs of agent and env, need
SAVED_SCHEME = "border-saved"  # of the settings of a run that is resumed
SHIPPED = ("hydra", "main")  # Hydra's name for each place that holds files of installed packages

# Like modules, shipped files are read once per process; that was a fifth of a composition's time.
_shipped: dict[tuple[str, str], ConfigResult] = {}


def group_base(group: str) -> type[Any]:
    """The dataclass that every component of a group derives from: AgentConfig for `agent`."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Any] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


class Schemas(ConfigSource):
    """Makes the schema of a component when a file first asks for it.

    A composition asks for about ten of the thirty, and to make one takes milliseconds.
    """

    @staticmethod
    def scheme() -> str:
        return "border-schema"

    def load_config(self, config_path: str) -> ConfigResult:
        group, option = _named(config_path)
        made = _schema(GROUPS[group].entry(option)) if group else _run_schema()
        return ConfigResult("border_cli", self.full_path(), deepcopy(made), {"package": None})

    def is_group(self, config_path: str) -> bool:
        folder, _, group = config_path.rstrip("/").partition("/")
        return folder == SCHEMA and (not group or group in GROUPS)

    def is_config(self, config_path: str) -> bool:
        if not config_path.startswith(f"{SCHEMA}/"):
            return False
        group, option = _named(config_path)
        return option in GROUPS[group].names() if group in GROUPS else (group, option) == ("", RUN)

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group = config_path.rstrip("/").removeprefix(SCHEMA).removeprefix("/")
        configs = GROUPS[group].names() if group else [RUN]
        groups = [] if group else list(GROUPS)
        found = {ObjectType.CONFIG: configs, ObjectType.GROUP: groups}
        return found[results_filter] if results_filter else sorted([*configs, *groups])


def _named(config_path: str) -> tuple[str, str]:
    """`agent` and `dqn` of `schema/agent/dqn.yaml`; of `schema/run` an empty group."""
    group, slash, option = config_path.removesuffix(".yaml").partition("/")[2].partition("/")
    return (group, option) if slash else ("", group)


@cache
def _run_schema() -> DictConfig:
    made: DictConfig = OmegaConf.structured(RunConfig)
    return made


@cache
def _schema(entry: Entry) -> DictConfig:
    node: DictConfig = OmegaConf.structured(entry.config_type)
    _open_free_dicts(node, entry.config_type)
    return node


FREE = (dict[str, Any], dict[str, float], dict[str, float] | None)


def _open_free_dicts(node: DictConfig, kind: type[Any]) -> None:
    """Lets `env.kwargs.x=1` work without a `+`: any key is valid in a free dict."""
    for name in free_dicts(kind):
        child = node._get_node(name)
        if isinstance(child, DictConfig):
            child._set_flag("struct", False)


def free_dicts(kind: type[Any]) -> list[str]:
    """The settings that may hold any key."""
    hints = get_type_hints(kind)
    return [each.name for each in fields(kind) if hints[each.name] in FREE]


class BlankSchemas(ConfigSource):
    """Answers every schema with nothing: before the imports, the user's are not registered."""

    @staticmethod
    def scheme() -> str:
        return "border-blank"

    def load_config(self, config_path: str) -> ConfigResult:
        empty = OmegaConf.create()
        return ConfigResult(self.provider, config_path, empty, header={"package": None})

    def is_group(self, config_path: str) -> bool:  # noqa: ARG002 - the groups are the files'
        return False

    def is_config(self, config_path: str) -> bool:
        return config_path.startswith(f"{SCHEMA}/")

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:  # noqa: ARG002
        return []


class Repository(ConfigRepository):
    """Refuses what Hydra passes over in a defaults list: unknown keywords, groups that no folder
    has where the entry is optional or null, and tuned files that are named and not there."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A pair without a tuned file has an empty one, so that its place among the defaults is
        known: files of the agent stand there, too."""
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        place = (source.full_path() if source else "", config_path)
        if place in _shipped:
            return deepcopy(_shipped[place])
        found = super().load_config(config_path)
        if found is not None and found.provider in SHIPPED:
            _shipped[place] = deepcopy(found)
        if found is None and config_path.startswith(f"{TUNED}/"):
            header: dict[str, str | None] = {"package": "_global_"}
            return ConfigResult("border_cli", config_path, OmegaConf.create(), header)
        return found

    def _create_defaults_list(self, config_path: str, defaults: ListConfig) -> list[InputDefault]:
        if not config_path.startswith("hydra/"):
            for entry in defaults._iter_ex(resolve=False):
                if isinstance(entry, DictConfig) and len(entry) == 1:
                    key = next(iter(entry.keys()))
                    self._check(config_path, str(key), entry._get_node(key))
        return super()._create_defaults_list(config_path, defaults)

    def _check(self, config_path: str, key: str, node: Any) -> None:
        *keywords, group = key.partition("@")[0].split()
        for word in keywords:
            if word not in KEYWORDS:
                raise ConfigError(
                    f"{self._shown(config_path)}: `{key}: …`: {unknown('keyword', word, KEYWORDS)}"
                )
        path = absolute(config_path, group)
        if "override" not in keywords and not self.group_exists(path):
            known = self.get_group_options("", ObjectType.GROUP)
            raise ConfigError(f"{self._shown(config_path)}: {unknown('group', path, known)}")
        value = node._value()
        named = isinstance(value, str) and "${" not in value and "optional" not in keywords
        if path == TUNED and named and not self.config_exists(f"{TUNED}/{value}"):
            known = self.get_group_options(TUNED, ObjectType.CONFIG)
            raise ConfigError(f"{self._shown(config_path)}: {unknown(TUNED, value, known)}")

    def _shown(self, config_path: str) -> str:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        file = file_of(source.full_path(), config_path) if source else None
        return shown(file) if file else config_path


def absolute(config_path: str, group: str) -> str:
    """The path of an entry of a defaults list, which may be relative to its file."""
    folder = config_path.rpartition("/")[0]
    return group[1:] if group.startswith("/") else f"{folder}/{group}".lstrip("/")


def file_of(source: str, path: str) -> str | None:
    """The file of `agent/dqn` in `file://FOLDER` or `pkg://package`; None for a schema."""
    scheme, _, folder = source.partition("://")
    if scheme in ("file", SAVED_SCHEME):
        return f"{folder}/{path}.yaml"
    if scheme == "pkg":
        return str(importlib.resources.files(folder).joinpath(f"{path}.yaml"))
    return None


def shown(file: str) -> str:
    """Relative to the current folder where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
