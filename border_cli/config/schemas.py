"""The registry's dataclasses as the schemas `/schema/run` and `/schema/<group>/<name>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf

from border_cli.registry import GROUPS
from border_cli.settings.base import Settings
from border_cli.settings.run import RunConfig

SCHEMA = "schema"  # the folder of all schemas
RUN = "run"
# Any key is valid in these, so that `env.kwargs.x=1` needs no `+`.
FREE = (dict[str, Any], dict[str, float], dict[str, float] | None)


def takes_several(group: str) -> bool:
    """Whether a run may have several components of a group."""
    return group in GROUPS and get_origin(get_type_hints(RunConfig)[group]) is dict


@cache
def base_of(group: str) -> type[Settings]:
    """The class that the settings of each option of a group extend, or of a section its class."""
    hint = get_type_hints(RunConfig)[group]
    base: type[Settings] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


def names_schema(path: str) -> bool:
    """Whether there is a schema `schema/agent/dqn`."""
    folder, group, option = parts_of(path)
    if folder != SCHEMA:
        return False
    return option in GROUPS[group].names() if group in GROUPS else (group, option) == ("", RUN)


def schema(path: str) -> DictConfig:
    """The schema `schema/agent/dqn`; it is shared, so copy it before it is changed."""
    _, group, option = parts_of(path)
    if not group:
        return run_schema()
    kind: Any = GROUPS[group].entry(option).config_type
    return schema_of(kind)


def schemas_in(group: str) -> tuple[Sequence[str], Sequence[str]]:
    """The schemas and the folders in `schema` or `schema/<group>`."""
    inside = group.removeprefix(SCHEMA).removeprefix("/")
    return (GROUPS[inside].names(), []) if inside else ([RUN], list(GROUPS))


def parts_of(path: str) -> tuple[str, str, str]:
    """`schema`, `agent` and `dqn` of `schema/agent/dqn`; of `schema/run` an empty group."""
    folder, _, rest = path.partition("/")
    group, slash, option = rest.partition("/")
    return (folder, group, option) if slash else (folder, "", group)


def run_schema() -> DictConfig:
    """The schema of a run, without components."""
    return schema_of(RunConfig)


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
