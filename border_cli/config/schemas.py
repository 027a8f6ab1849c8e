"""The registry's dataclasses as Hydra schemas: `/schema/run` and `/schema/<group>/<name>`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.registry import GROUPS, Entry, register_builtin

_stored: dict[str, type[Any]] = {}


def group_base(group: str) -> type[Any]:
    """The dataclass that every component of a group derives from: AgentConfig for `agent`."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Any] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


def register_schemas() -> None:
    """Stores a schema for every registered component; again after an import brought more."""
    register_builtin()
    store = ConfigStore.instance()
    _store(store, "schema", "run", RunConfig, lambda: OmegaConf.structured(RunConfig))
    for group, registry in GROUPS.items():
        for entry in registry:
            make = partial(_schema, group, entry, group_base(group))
            _store(store, f"schema/{group}", entry.name, entry.config_type, make)


def _store(
    store: ConfigStore, group: str, name: str, kind: type[Any], make: Callable[[], DictConfig]
) -> None:
    """Stores what is new or was registered anew; the rest is there already."""
    path = f"{group}/{name}.yaml"
    if _stored.get(path) is not kind or store.get_type(path) is ObjectType.NOT_FOUND:
        store.store(name, make(), group, provider="border_cli")
        _stored[path] = kind


def _schema(group: str, entry: Entry, base: type[Any]) -> DictConfig:
    kind = entry.config_type
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
    """Lets `env.kwargs.x=1` work without a `+`: the keys below a free dict are not ours to know."""
    for name in free_dicts(kind):
        child = node._get_node(name)
        if isinstance(child, DictConfig):
            child._set_flag("struct", False)


def free_dicts(kind: type[Any]) -> list[str]:
    """The settings that may hold any key."""
    hints = get_type_hints(kind)
    return [each.name for each in fields(kind) if hints[each.name] == dict[str, Any]]
