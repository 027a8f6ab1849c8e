"""Which components exist: names, settings, and classes that are imported only when built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from border_cli.errors import ConfigError
from border_cli.settings.base import OF_ONE_COMMAND, Settings, flat
from border_cli.words import unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """One component: what it is called, its settings and where its class lives."""

    name: str
    config_type: type[Any]
    target: str  # "package.module:Class"
    presets: tuple[str, ...] = ()  # further options of the group, with other values of the settings


class Registry:
    """The components of one config group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[str, Entry] = {}

    def register(
        self, name: str, config_type: type[Any], target: str, *, presets: tuple[str, ...] = ()
    ) -> None:
        """Adds a component. Its settings are a dataclass; `target` is imported when it is built.

        A module may be imported twice; another class under the same name is refused.
        """
        entry = Entry(name, config_type, target, presets)
        _refuse_another(f"{self.group}={name}", self._entries.get(name, entry).target, target)
        self._entries[name] = entry

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
        loaded: type[Any] = _loaded(self.entry_of(config).target)
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
CALLBACKS = Registry("callback")  # users have some, we have none

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
        CALLBACKS,
    )
}


def components(config: Any) -> dict[str, Settings]:
    """What a run has chosen by its places: `agent`, and `recorder.jsonl` of a group of several."""
    found: dict[str, Settings] = {}
    for group in GROUPS:
        chosen = getattr(config, group)
        if isinstance(chosen, dict):
            found |= {f"{group}.{name}": each for name, each in chosen.items()}
        else:
            found[group] = chosen
    return found


def flat_settings(config: Settings) -> dict[str, Any]:
    """All settings of a run by their dotted names, and of each group the option: `agent`.

    `agent=droq` is a file, and its component `sac`, which stands for settings made without a file.
    """
    settings = {name: value for name, value in flat(config).items() if name not in OF_ONE_COMMAND}
    options: dict[str, Any] = {}
    for group, registry in GROUPS.items():
        chosen = getattr(config, group)
        if isinstance(chosen, dict):
            options[group] = list(chosen)
        else:
            options[group] = settings.pop(f"{group}.option") or registry.entry_of(chosen).name
    return {**options, **settings, **options}  # a group without members is flat, too


class Targets:
    """Names that a setting takes, and the classes that they stand for."""

    def __init__(self, setting: str, own: Sequence[str] = ()) -> None:
        """`own` have no class of their own."""
        self._setting = setting
        self._targets: dict[str, str | None] = dict.fromkeys(own)

    def register(self, name: str, target: str | type[Any]) -> None:
        """Adds a class, or "module:Class", which is imported when it is used.

        A module may be imported twice; another class under the same name is refused.
        """
        if not isinstance(target, str):
            target = f"{target.__module__}:{target.__qualname__}"
        known = self._targets.get(name, target)
        _refuse_another(f"{self._setting}={name}", known or "ours", target)
        self._targets[name] = target

    def names(self) -> list[str]:
        """In the order of their registration."""
        return list(self._targets)

    def target(self, name: str) -> str | None:
        """Its "module:Class", where it has one."""
        return self._targets[name]

    def load(self, name: str) -> Any:
        """Imports and returns its class."""
        target = self._targets[name]
        assert target is not None
        return _loaded(target)


def _refuse_another(chosen: str, known: str, target: str) -> None:
    if known != target:
        raise ConfigError(f"{chosen} is registered twice: {known}, {target}")


def _loaded(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


NETWORKS = Targets(
    "agent.network", ("auto", "mlp", "minatar_cnn", "nature_cnn", "der_cnn", "impala_resnet")
)
# `EvaluationRunner`s with `of(parts)` and `refuse_missing(config)`, see evaluator/runner.py.
EVALUATION_RUNNERS = Targets("evaluator.where", ("local",))
# Who runs the jobs of a sweep, by the name of Hydra's launcher, see sweep/launchers.py.
JOB_LAUNCHERS = Targets("hydra/launcher")

ENGINES = ("ray",)  # rooms that run actors, evaluations and jobs in their own way


def register_builtin() -> None:
    """Imports the settings of every group that ships with border_cli; cheap, and free of torch."""
    for room in [*GROUPS, *ENGINES]:
        if room != CALLBACKS.group:
            importlib.import_module(f"border_cli.{room}.config")
