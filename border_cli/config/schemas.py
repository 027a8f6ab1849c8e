"""The registry's dataclasses as Hydra schemas: `/schema/run` and `/schema/<group>/<name>`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.registry import GROUPS, Entry, register_builtin

FOLDER = "schema"
RUN = "run"


def group_base(group: str) -> type[Any]:
    """The dataclass that every component of a group derives from: AgentConfig for `agent`."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Any] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


class Schemas(ConfigSource):
    """Makes the schema of a component when a file asks for it; there is nothing to keep in step.

    A composition asks for about ten of the thirty, and to make one takes milliseconds.
    """

    @staticmethod
    def scheme() -> str:
        return "border-schema"

    def load_config(self, config_path: str) -> ConfigResult:
        group, option = _named(config_path)
        if group:
            made = _schema(group, GROUPS[group].entry(option))
        else:
            made = OmegaConf.structured(RunConfig)
        return ConfigResult("border_cli", self.full_path(), made, header={"package": None})

    def is_group(self, config_path: str) -> bool:
        folder, _, group = config_path.rstrip("/").partition("/")
        return folder == FOLDER and (not group or group in GROUPS)

    def is_config(self, config_path: str) -> bool:
        if not config_path.startswith(f"{FOLDER}/"):
            return False
        group, option = _named(config_path)
        return option in GROUPS[group].names() if group in GROUPS else (group, option) == ("", RUN)

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group = config_path.rstrip("/").removeprefix(FOLDER).removeprefix("/")
        configs = GROUPS[group].names() if group else [RUN]
        groups = [] if group else list(GROUPS)
        found = {ObjectType.CONFIG: configs, ObjectType.GROUP: groups}
        return found[results_filter] if results_filter else sorted([*configs, *groups])


def _named(config_path: str) -> tuple[str, str]:
    """`agent` and `dqn` of `schema/agent/dqn.yaml`; of `schema/run` an empty group."""
    group, slash, option = config_path.removesuffix(".yaml").partition("/")[2].partition("/")
    return (group, option) if slash else ("", group)


def register_components() -> None:
    """Registers our components; refuses those of others that cannot be a schema."""
    register_builtin()
    for group, registry in GROUPS.items():
        for entry in registry:
            if not entry.target.startswith("border_cli."):
                _schema(group, entry)


def _schema(group: str, entry: Entry) -> DictConfig:
    kind, base = entry.config_type, group_base(group)
    what = f"{group} {entry.name!r}: its settings {kind.__module__}.{kind.__qualname__}"
    if not issubclass(kind, base):
        raise ConfigError(f"{what} must derive from {base.__module__}.{base.__name__}")
    try:
        node: DictConfig = OmegaConf.structured(kind)
        _open_free_dicts(node, kind)
    except (OmegaConfBaseException, NameError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{what} cannot be a schema: {reason}") from error
    if kind.__dataclass_params__.frozen:
        raise ConfigError(f"{what} must not be frozen: the command line could not set them")
    return node


def _open_free_dicts(node: DictConfig, kind: type[Any]) -> None:
    """Lets `env.kwargs.x=1` work without a `+`: any key is valid in a free dict."""
    for name in free_dicts(kind):
        child = node._get_node(name)
        if isinstance(child, DictConfig):
            child._set_flag("struct", False)


def free_dicts(kind: type[Any]) -> list[str]:
    """The settings that may hold any key."""
    hints = get_type_hints(kind)
    return [each.name for each in fields(kind) if hints[each.name] == dict[str, Any]]
