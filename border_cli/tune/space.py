"""Search spaces: what `border-tune` varies, over which values, and under which conditions.

conf/search/<name>.yaml has an entry for each hyperparameter, in the order in which they are chosen:

    defaults: [dqn]  # begins with the entries of search/dqn; an entry that is null takes one out
    hyperparameters:
      agent.learning_rate: {low: 1e-5, high: 1e-2, log: true, unit: of Adam}
      agent.gamma: {low: 0.9, high: 0.999, log: 1 - x}  # 1 - gamma on a log scale
      agent.batch_size: {low: 32, high: 512, powers_of: 2}
      step_processor.n_steps: {low: 1, high: 5}         # an integer, as low and high are
      replay_buffer: {choices: [uniform, prioritized]}
      replay_buffer.alpha: {low: 0.2, high: 0.8, when: {replay_buffer: prioritized}}
      target:  # labels of values that belong together
        choices: {hard: {agent.tau: 1.0, agent.target_interval: 500}, soft: {agent.tau: 0.01}}

Where a condition does not hold, the hyperparameter is left as composed. Optuna knows a list's
values by their texts, so that any value may be listed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from border_cli.config.check import REFUSED, explanation
from border_cli.config.compose import Composer
from border_cli.config.describe import shown
from border_cli.config.files import Files
from border_cli.config.overrides import parsed
from border_cli.config.search_path import SEARCH
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.words import setting, unknown

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

COMPLEMENT = "1 - x"  # of `log`: what lies just below 1, on a log scale of its distance to 1


@dataclass(slots=True, kw_only=True)
class Hyperparameter:
    """A number with a range, or one of several choices; not changed once it is read."""

    name: str  # a setting, or any name where labels say what is set
    choices: dict[str, dict[str, Any]]  # what each label sets; none of a number
    when: dict[str, list[str]]  # the labels of earlier ones with which it is asked for
    low: int | float = math.inf
    high: int | float = -math.inf
    log: bool | str = False
    powers_of: int | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        scaled = self.log in (False, True, COMPLEMENT) and self.low < self.high
        if not (self.choices or (scaled and (self.ends[0] > 0 or not self.log))):
            raise TypeError(  # to which OmegaConf adds the name
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
    def ends(self) -> list[Any]:
        """The lowest and the highest parameter, or all labels."""
        return [*self.choices] or sorted(map(self._scaled, (self.low, self.high)))

    def _scaled(self, value: float) -> int | float:
        """The parameter of a value."""
        if self.powers_of:
            return round(math.log(value, self.powers_of))
        return round(1 - value, 10) if self.log == COMPLEMENT else value

    def suggest(self, trial: BaseTrial) -> Any:
        """The parameter, asked for."""
        if self.choices:
            return trial.suggest_categorical(self.param, self.ends)
        ask = trial.suggest_float if float in map(type, self.ends) else trial.suggest_int
        return ask(self.param, *self.ends, log=bool(self.log))

    def settings(self, param: Any) -> dict[str, Any]:
        """What the parameter sets: numbers of four digits, which are what is trained."""
        if self.choices:
            return self.choices[param]
        value = param if isinstance(param, int) else float(f"{param:.4g}")
        value = self.powers_of**value if self.powers_of else self._scaled(value)
        return {self.name: min(max(value, self.low), self.high)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The hyperparameters of a study, by name, in the order in which they are chosen."""

    file: str  # in messages
    content: dict[str, Any]  # all entries, with those that the file builds on: values of JSON
    hyperparameters: dict[str, Hyperparameter]

    def suggest(self, trial: BaseTrial) -> dict[str, Any]:
        """Asks for each hyperparameter whose condition holds: parameters by Optuna's names."""
        params: dict[str, Any] = {}
        for each in self.hyperparameters.values():
            if all(params.get(name) in labels for name, labels in each.when.items()):
                params[each.param] = each.suggest(trial)
        return params

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """What the parameters set, as it is typed: `agent.gamma=0.99`."""
        return [
            setting(key, value) if isinstance(value, str) else f"{key}={shown(value)}"
            for each in self.hyperparameters.values()
            if each.param in params
            for key, value in each.settings(params[each.param]).items()
        ]

    def without(self, typed: Sequence[str]) -> Space:
        """The space beside what is typed for every run.

        A hyperparameter of which a setting is typed is not searched, whatever else it sets: its
        values belong together. Nor are the parts of a schedule that a typed number replaces, and
        what depends on a hyperparameter that is not searched.
        """
        overrides = parsed(typed)
        keys = {each.key_or_group for each in overrides}
        constants = tuple(
            f"{each.key_or_group}." for each in overrides if isinstance(each.value(), int | float)
        )
        left: dict[str, Hyperparameter] = {}
        for name, each in self.hyperparameters.items():
            sets = {name}.union(*each.choices.values())
            is_typed = bool(keys & sets) or any(name.startswith(constants) for name in sets)
            if left.keys() >= {*each.when} and not is_typed:
                left[name] = each
        return replace(self, hyperparameters=left)


def read_space(files: Files, name: str) -> Space:
    """The space of conf/search/<name>.yaml, in the folders of the user, of plug-ins or ours."""
    file = f"{SEARCH}/{name}.yaml"
    try:
        return space_of(json.loads(json.dumps(_entries(files, name))), file)  # texts for labels
    except (*REFUSED, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"{file}: {explanation(error, files, ())}") from error


def space_of(content: Mapping[str, Any], file: str) -> Space:
    """The space of these entries."""
    values = {"file": file, "content": content, "hyperparameters": _written_out(content)}
    made: Any = OmegaConf.to_object(OmegaConf.merge(Space, values))
    space: Space = made
    return space


def _entries(files: Files, name: str) -> dict[str, Any]:
    """The entries of a file and of those that it builds on."""
    read = files.read(f"{SEARCH}/{name}")
    if read is None:
        raise ConfigError(unknown("search space", name, files.options(SEARCH)))
    content: Any = OmegaConf.to_container(read.config)
    found: dict[str, Any] = {}
    for base in content.get("defaults", ()):
        found |= _entries(files, base)
    found |= content.get("hyperparameters", {})
    return {key: entry for key, entry in found.items() if entry is not None}


def _written_out(content: Mapping[str, Any]) -> dict[str, Any]:
    """Entries as the types of hyperparameters have them."""
    found: dict[str, Any] = {}
    for name, entry in content.items():
        given = {"choices": {}, **entry, "name": name, "when": {}}
        if isinstance(given["choices"], list):
            given["choices"] = {shown(each): {name: each} for each in given["choices"]}
        for on, labels in entry.get("when", {}).items():
            known = found[on]["choices"] if on in found else ()
            given["when"][on] = [*map(shown, labels if isinstance(labels, list) else [labels])]
            for label in given["when"][on]:
                if label not in known:
                    raise ConfigError(f"{name}: when: {unknown(on, label, known)}")
        found[name] = given
    return found


def check_space(composer: Composer, space: Space, fixed: Sequence[str], terms: SweepTerms) -> None:
    """Refuses, with file and hyperparameter, what the jobs of a study would be refused for: both
    ends of every range and every choice are composed beside what is fixed."""
    if not space.hyperparameters:
        raise ConfigError(f"{space.file}: nothing is left to search")
    tried = [
        (each.name, {on: labels[0] for on, labels in each.when.items()} | {each.param: end})
        for each in space.hyperparameters.values()
        for end in each.ends
    ]
    batch = [[*fixed, *space.overrides(params)] for _, params in tried]
    refused: dict[int, ConfigError] = {}
    jobs_of(composer, batch, terms, refused=refused)
    for number, error in refused.items():
        raise ConfigError(f"{space.file}: {tried[number][0]}: {error}") from error
