"""The registry of components: names, settings, and classes that are imported on first use."""

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
    """A component: its name, its settings and the path of its class."""

    name: str
    config_type: type[Any]
    target: str  # "package.module:Class"
    presets: tuple[
        str, ...
    ] = ()  # other options of the group with different values of the settings


class Registry:
    """The components of a config group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[str, Entry] = {}

    def register(
        self, name: str, config_type: type[Any], target: str, *, presets: tuple[str, ...] = ()
    ) -> None:
        """Adds a component. `config_type` is a dataclass; `target` is imported on first use.

        Registering the same class twice is allowed. Another class under the same name is refused,
        and so is another name for the same settings, which could mean either class.
        """
        entry = Entry(name, config_type, target, presets)
        _refuse_another(f"{self.group}={name}", self._entries.get(name, entry).target, target)
        for other in self:
            if other.config_type is config_type and other.name != name:
                raise ConfigError(
                    f"{self.group}={name} needs settings of its own: those of {self.group}="
                    f"{other.name} are {config_type.__name__}; derive a class from it"
                )
        self._entries[name] = entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted(self._entries)

    def entry(self, name: str) -> Entry:
        """Returns the component `name`; raises ConfigError if it does not exist."""
        if name not in self._entries:
            raise ConfigError(unknown(self.group, name, self.names()))
        return self._entries[name]

    def entry_of(self, config: object) -> Entry:
        """Returns the component that `config` configures."""
        for entry in self:
            if type(config) is entry.config_type:
                return entry
        raise ConfigError(
            f"{self.group}: no component is registered for settings of type "
            f"{type(config).__name__}. Known: {', '.join(self.names())}"
        )

    def load(self, config: object) -> type[Any]:
        """Imports and returns the class that `config` configures."""
        loaded: type[Any] = import_target(self.entry_of(config).target)
        return loaded

    def build(self, config: object, **runtime: Any) -> Any:
        """Builds the component from `config` and from arguments known only at run time."""
        return self.load(config)(config, **runtime)


AGENTS = Registry("agent")
ENVS = Registry("env")
STEP_PROCESSORS = Registry("step_processor")
REPLAY_BUFFERS = Registry("replay_buffer")
ACTOR_MANAGERS = Registry("actor_manager")
TRAINERS = Registry("trainer")
EVALUATORS = Registry("evaluator")
RECORDERS = Registry("recorder")
CALLBACKS = Registry("callback")  # empty, for the callbacks of users

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
    """Returns the settings of a run's components by path: `agent`, or `recorder.jsonl` in groups
    with several components."""
    settings_by_path: dict[str, Settings] = {}
    for group in GROUPS:
        chosen = getattr(config, group)
        if isinstance(chosen, dict):
            settings_by_path |= {f"{group}.{name}": settings for name, settings in chosen.items()}
        else:
            settings_by_path[group] = chosen
    return settings_by_path


def flat_settings(config: Settings) -> dict[str, Any]:
    """Returns all settings of a run by dotted name, and the chosen option by group (`agent`). The
    option is the name of a config file, such as `droq`, or without a file that of the component."""
    settings = {name: value for name, value in flat(config).items() if name not in OF_ONE_COMMAND}
    options: dict[str, Any] = {}
    for group, registry in GROUPS.items():
        chosen = getattr(config, group)
        if isinstance(chosen, dict):
            options[group] = list(chosen)
        else:
            options[group] = settings.pop(f"{group}.option") or registry.entry_of(chosen).name
    return {**options, **settings, **options}  # `settings` also contains empty groups


class Targets:
    """The names that a setting accepts, and the classes that they refer to."""

    def __init__(self, setting: str, own: Sequence[str] = ()) -> None:
        """`own` are names without a class."""
        self._setting = setting
        self._targets: dict[str, str | None] = dict.fromkeys(own)

    def register(self, name: str, target: str | type[Any]) -> None:
        """Adds a class, or a "module:Class" that is imported on first use.

        Registering the same class twice is allowed; another class under the same name is refused.
        """
        if not isinstance(target, str):
            target = f"{target.__module__}:{target.__qualname__}"
        registered = self._targets.get(name, target)
        _refuse_another(f"{self._setting}={name}", registered or "ours", target)
        self._targets[name] = target

    def names(self) -> list[str]:
        """Returns all names, in the order of registration."""
        return list(self._targets)

    def target(self, name: str) -> str | None:
        """Returns the "module:Class" of a name; None for a name without a class."""
        return self._targets[name]

    def load(self, name: str) -> Any:
        """Imports and returns the class of a name."""
        target = self._targets[name]
        assert target is not None
        return import_target(target)


def _refuse_another(chosen: str, registered: str, target: str) -> None:
    if registered != target:
        raise ConfigError(f"{chosen} is registered twice: {registered}, {target}")


def import_target(target: str) -> Any:
    """Imports and returns the class named `module:Class`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


NETWORKS = Targets(
    "agent.network", ("auto", "mlp", "minatar_cnn", "nature_cnn", "der_cnn", "impala_resnet")
)
# `EvaluationRunner` classes with `of(EvaluationParts)` and `refuse_missing(config)`, see
# evaluator/runner.py and ray/evaluation.py.
EVALUATION_RUNNERS = Targets("evaluator.where", ("local",))
# `JobLauncher` classes by the name of Hydra's launcher, see sweep/processes.py.
JOB_LAUNCHERS = Targets("hydra/launcher")

ENGINES = ("ray",)  # packages with their own way to run actors, evaluations and jobs


def register_builtin() -> None:
    """Imports the settings of all built-in components; fast, and without torch."""
    for package in [*GROUPS, *ENGINES]:
        if package != CALLBACKS.group:
            importlib.import_module(f"border_cli.{package}.config")
