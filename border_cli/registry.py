"""Which components exist: names, settings, and classes that are imported only when built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any

from border_cli.core.errors import ConfigError
from border_cli.core.words import unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """One component: what it is called, its settings and where its class lives."""

    name: str
    config_type: type[Any]
    target: str  # "package.module:Class"


class Registry:
    """The components of one config group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, config_type: type[Any], target: str) -> None:
        """Adds a component. Its settings are a dataclass; `target` is imported when it is built.

        A second registration of the same three is ignored, so a module may be imported twice;
        of another class under the same name it is refused.
        """
        if not is_dataclass(config_type):
            raise TypeError(f"{self.group} {name!r}: {config_type!r} is not a dataclass")
        known = self._entries.get(name)
        if known and (known.target, known.config_type.__qualname__) != (
            target,
            config_type.__qualname__,
        ):
            raise ConfigError(f"{self.group}={name} is registered twice: {known.target}, {target}")
        self._entries[name] = Entry(name, config_type, target)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)

    def entry(self, name: str) -> Entry:
        """The component of that name; an unknown one lists the known."""
        if name not in self._entries:
            raise ConfigError(unknown(self.group, name, self.names()))
        return self._entries[name]

    def entry_of(self, config: object) -> Entry:
        """The component whose settings `config` is an instance of."""
        for entry in self:
            if type(config) is entry.config_type:
                return entry
        raise ConfigError(
            f"{self.group}: no component is registered for settings of type "
            f"{type(config).__name__}. Known: {', '.join(self.names())}"
        )

    def load(self, config: object) -> type[Any]:
        """Imports and returns the class that `config` configures."""
        module, _, name = self.entry_of(config).target.partition(":")
        loaded: type[Any] = getattr(importlib.import_module(module), name)
        return loaded

    def build(self, config: object, **runtime: Any) -> Any:
        """The object that `config` describes; `runtime` is what only the program knows."""
        return self.load(config)(config, **runtime)


AGENTS = Registry("agent")
ENVS = Registry("env")
STEP_PROCESSORS = Registry("step_processor")
REPLAY_BUFFERS = Registry("replay_buffer")
ACTOR_MANAGERS = Registry("actor_manager")
TRAINERS = Registry("trainer")
EVALUATORS = Registry("evaluator")
RECORDERS = Registry("recorder")

GROUPS: dict[str, Registry] = {
    registry.group: registry
    for registry in (
        AGENTS,
        ENVS,
        STEP_PROCESSORS,
        REPLAY_BUFFERS,
        ACTOR_MANAGERS,
        TRAINERS,
        EVALUATORS,
        RECORDERS,
    )
}


def register_builtin() -> None:
    """Imports the settings of every group that ships with border_cli; cheap, and free of torch."""
    for group in GROUPS:
        importlib.import_module(f"border_cli.{group}.config")
