"""Search spaces: the hyperparameters that `border-tune` varies, their values and conditions.

conf/search/<name>.yaml has an entry for each hyperparameter, in the order in which they are chosen:

    defaults: [dqn]  # start from the entries of search/dqn; a null entry removes one
    hyperparameters:
      agent.learning_rate: {low: 1e-5, high: 1e-2, log: true, unit: Adam}
      agent.gamma: {low: 0.9, high: 0.999, log: 1 - x}  # 1 - gamma on a log scale
      agent.batch_size: {low: 32, high: 512, powers_of: 2}
      step_processor.n_steps: {low: 1, high: 5}         # an integer, because low and high are
      replay_buffer: {choices: [uniform, prioritized]}
      replay_buffer.alpha: {low: 0.2, high: 0.8, when: {replay_buffer: prioritized}}
      target:  # labels of values that belong together
        choices: {hard: {agent.tau: 1.0, agent.target_interval: 500}, soft: {agent.tau: 0.01}}

If a condition does not hold, the hyperparameter has its composed value. Optuna gets the choices of
a list as text, so a list may contain any values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from border_cli.config.check import CONFIG_ERRORS, explanation
from border_cli.config.compose import Composer
from border_cli.config.describe import format_setting
from border_cli.config.files import Files
from border_cli.config.overrides import parse_overrides
from border_cli.config.search_path import SEARCH
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.settings.schedule import SCHEDULE_KEYS
from border_cli.words import format_override, unknown

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

COMPLEMENT = "1 - x"  # value of `log` for values close to 1: a log scale of the distance to 1


@dataclass(slots=True, kw_only=True)
class Hyperparameter:
    """A number in a range, or one of several choices; not changed after it is read."""

    name: str  # a setting, or any name if the choices have labels
    choices: dict[str, dict[str, Any]]  # label -> settings; empty for a number
    when: dict[str, list[str]]  # condition: earlier hyperparameter -> labels that it must have
    low: int | float = math.inf
    high: int | float = -math.inf
    log: bool | str = False
    powers_of: int | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        scaled = self.log in (False, True, COMPLEMENT) and self.low < self.high
        if not (self.choices or (scaled and (self.ends[0] > 0 or not self.log))):
            raise TypeError(  # OmegaConf adds the name to the message
                "there must be choices, or low below high (with log: true above 0, with log: 1 - x "
                "below 1)"
            )

    @property
    def param(self) -> str:
        """Optuna's name: `1 - agent.gamma`, `log2 agent.batch_size`."""
        if self.powers_of:
            return f"log{self.powers_of} {self.name}"
        return f"1 - {self.name}" if self.log == COMPLEMENT else self.name

    @property
    def first_labels(self) -> dict[str, Any]:
        """The first label of each condition."""
        return {name: labels[0] for name, labels in self.when.items()}

    @property
    def ends(self) -> list[Any]:
        """The lowest and highest parameter, or all labels."""
        return [*self.choices] or sorted(map(self._scale, (self.low, self.high)))

    def _scale(self, value: float) -> int | float:
        """Converts a value to Optuna's parameter."""
        if self.powers_of:
            return round(math.log(value, self.powers_of))
        return round(1 - value, 10) if self.log == COMPLEMENT else value

    def applies(self, params: Mapping[str, Any]) -> bool:
        """Returns whether all conditions hold for the parameters."""
        return all(params.get(name) in labels for name, labels in self.when.items())

    def suggest(self, trial: BaseTrial) -> Any:
        """Samples the parameter with an Optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.param, self.ends)
        ask = trial.suggest_float if float in map(type, self.ends) else trial.suggest_int
        return ask(self.param, *self.ends, log=bool(self.log))

    def settings(self, param: Any) -> dict[str, Any]:
        """Returns the settings for a parameter. Float parameters have four significant digits."""
        if self.choices:
            return self.choices[param]
        value = param if isinstance(param, int) else float(f"{param:.4g}")
        value = self.powers_of**value if self.powers_of else self._scale(value)
        return {self.name: min(max(value, self.low), self.high)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The hyperparameters of a study, by name, in the order in which they are chosen."""

    file: str  # used in messages
    content: dict[str, Any]  # JSON values of all entries, including those from `defaults`
    hyperparameters: dict[str, Hyperparameter]

    def suggest(self, trial: BaseTrial) -> dict[str, Any]:
        """Samples all hyperparameters whose condition holds; returns parameters by Optuna name."""
        params: dict[str, Any] = {}
        for hyperparameter in self.hyperparameters.values():
            if hyperparameter.applies(params):
                params[hyperparameter.param] = hyperparameter.suggest(trial)
        return params

    def ends_together(self) -> list[dict[str, Any]]:
        """Returns the parameters of a few jobs that together use every end of every hyperparameter,
        each where its conditions hold."""
        unused = {name: [*entry.ends] for name, entry in self.hyperparameters.items()}
        rows = []
        for name, tested in self.hyperparameters.items():
            while unused[name]:
                row = tested.first_labels
                for other, entry in self.hyperparameters.items():
                    if unused[other] and entry.applies(row) and entry.param not in row:
                        row[entry.param] = unused[other].pop(0)
                rows.append(row)
        return rows

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """Returns the overrides for the parameters, such as `agent.gamma=0.99`."""
        return [
            format_override(key, value)
            if isinstance(value, str)
            else f"{key}={format_setting(value)}"
            for hyperparameter in self.hyperparameters.values()
            if hyperparameter.param in params
            for key, value in hyperparameter.settings(params[hyperparameter.param]).items()
        ]

    def without(self, typed: Sequence[str]) -> Space:
        """Returns the space without the hyperparameters that the typed overrides fix.

        A hyperparameter is not searched if any of its settings is typed, because they belong
        together. The same holds for a number whose schedule is typed part by part, for the parts of
        a schedule that a typed number replaces, and for hyperparameters that depend on one that is
        not searched.
        """
        overrides = parse_overrides(typed)
        keys = {override.key_or_group for override in overrides}
        typed_parts = tuple(f".{part}" for part in SCHEDULE_KEYS)
        keys |= {key.rpartition(".")[0] for key in keys if key.endswith(typed_parts)}
        constants = tuple(
            f"{override.key_or_group}."
            for override in overrides
            if isinstance(override.value(), int | float)
        )
        remaining: dict[str, Hyperparameter] = {}
        for name, hyperparameter in self.hyperparameters.items():
            sets = {name}.union(*hyperparameter.choices.values())
            is_typed = bool(keys & sets) or any(name.startswith(constants) for name in sets)
            if remaining.keys() >= {*hyperparameter.when} and not is_typed:
                remaining[name] = hyperparameter
        return replace(self, hyperparameters=remaining)


def read_space(files: Files, name: str) -> Space:
    """Reads conf/search/<name>.yaml from the user's, the plug-ins' or our own config directory."""
    file = f"{SEARCH}/{name}.yaml"
    try:
        return space_of(json.loads(json.dumps(_entries(files, name))), file)  # JSON keys are text
    except (*CONFIG_ERRORS, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"{file}: {explanation(error, files, ())}") from error


def space_of(content: Mapping[str, Any], file: str) -> Space:
    """Builds a space from its entries."""
    values = {"file": file, "content": content, "hyperparameters": _normalize_entries(content)}
    loaded: Any = OmegaConf.to_object(OmegaConf.merge(Space, values))
    space: Space = loaded
    return space


def _entries(files: Files, name: str) -> dict[str, Any]:
    """Returns the entries of a file, including those from its `defaults`."""
    source = files.read(f"{SEARCH}/{name}")
    if source is None:
        raise ConfigError(unknown("search space", name, files.options(SEARCH)))
    content: Any = OmegaConf.to_container(source.config)
    entries: dict[str, Any] = {}
    for base in content.get("defaults", ()):
        entries |= _entries(files, base)
    entries |= content.get("hyperparameters", {})
    return {key: entry for key, entry in entries.items() if entry is not None}


def _normalize_entries(content: Mapping[str, Any]) -> dict[str, Any]:
    """Converts entries to the fields of `Hyperparameter`."""
    normalized: dict[str, Any] = {}
    for name, entry in content.items():
        fields = {"choices": {}, **entry, "name": name, "when": {}}
        if isinstance(fields["choices"], list):
            fields["choices"] = {
                format_setting(value): {name: value} for value in fields["choices"]
            }
        for other, labels in entry.get("when", {}).items():
            known_labels = normalized[other]["choices"] if other in normalized else ()
            fields["when"][other] = [
                *map(format_setting, labels if isinstance(labels, list) else [labels])
            ]
            for label in fields["when"][other]:
                if label not in known_labels:
                    raise ConfigError(f"{name}: when: {unknown(other, label, known_labels)}")
        normalized[name] = fields
    return normalized


def check_space(composer: Composer, space: Space, fixed: Sequence[str], terms: SweepTerms) -> None:
    """Composes both ends of every range and every choice with the fixed overrides.

    Raises ConfigError with the file and the hyperparameter if one is refused. Each end is composed
    alone only if the ends together are refused, since a composition takes a fraction of a second.
    """
    if not space.hyperparameters:
        raise ConfigError(f"{space.file}: nothing is left to search")

    def compose(*rows: Mapping[str, Any]) -> None:
        jobs_of(composer, [[*fixed, *space.overrides(params)] for params in rows], terms)

    with suppress(ConfigError):
        compose(*space.ends_together())
        return
    for tested in space.hyperparameters.values():
        for end in tested.ends:
            try:
                compose(tested.first_labels | {tested.param: end})
            except ConfigError as error:
                raise ConfigError(f"{space.file}: {tested.name}: {error}") from error
