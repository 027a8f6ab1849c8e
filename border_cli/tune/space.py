"""Search spaces: what `border-tune` varies, over which values, and under which conditions.

conf/search/<name>.yaml has an entry for each hyperparameter, in the order in which they are chosen:

    defaults: [dqn]  # begins with the entries of search/dqn; an entry that is null takes one out
    hyperparameters:
      agent.learning_rate: {low: 1e-5, high: 1e-2, log: true, unit: of Adam}
      agent.gamma: {low: 0.9, high: 0.999, log: 1 - x}  # 1 - gamma on a log scale
      agent.batch_size: {low: 32, high: 512, powers_of: 2}
      step_processor.n_steps: {low: 1, high: 5}         # an integer, as low and high are
      rates: {sets: [agent.learning_rate, agent.critic_learning_rate], low: 1e-4, high: 1e-2}
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
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from border_cli.config.check import explained
from border_cli.config.compose import Composer
from border_cli.config.describe import shown
from border_cli.config.overrides import parsed
from border_cli.config.search_path import SEARCH
from border_cli.config.sources import Files
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import ConfigError
from border_cli.words import setting, shortest, unknown

if TYPE_CHECKING:
    from optuna.trial import Trial

COMPLEMENT = "1 - x"  # of `log`: what lies just below 1, on a log scale of its distance to 1
OF_ALL = ("sets", "when", "unit")
OF_NUMBERS = ("low", "high", "log", "step", *OF_ALL)
OF_POWERS = ("low", "high", "powers_of", *OF_ALL)
OF_CHOICES = ("choices", *OF_ALL)
OF_LABELS = ("choices", "when", "unit")
DRAWS = 2_000  # of ends and choices, among which each of them comes at least once


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameter:
    """What all hyperparameters have."""

    name: str  # a setting, or any name where `sets` or labels say what is set
    when: dict[str, list[str]]  # the choices of earlier ones with which it is asked for
    unit: str

    @property
    def param(self) -> str:
        """Optuna's name."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Hyperparameter):
    """One with a range."""

    sets: Sequence[str]
    low: float
    high: float
    log: bool | str = False
    step: float | None = None
    powers_of: float | None = None

    @property
    def param(self) -> str:
        """Optuna's name: `1 - agent.gamma`, `log2 agent.batch_size`."""
        if self.powers_of:
            return f"log{self.powers_of} {self.name}"
        return self.name if self.log != COMPLEMENT else f"1 - {self.name}"

    @property
    def ends(self) -> list[float]:
        """The lowest and the highest parameter."""
        if self.powers_of:
            return [round(math.log(each, self.powers_of)) for each in (self.low, self.high)]
        if self.log == COMPLEMENT:
            return [_rounded(1 - self.high, 10), _rounded(1 - self.low, 10)]
        return [self.low, self.high]

    @property
    def described(self) -> tuple[str, str]:
        """The range and the scale, in words."""
        scale = "log" if self.log else f"steps of {self.step}" if self.step else "linear"
        scale = f"log of {COMPLEMENT}" if self.log == COMPLEMENT else scale
        scale = f"powers of {self.powers_of}" if self.powers_of else scale
        return f"{self.low:g} to {self.high:g}", scale

    def suggest(self, trial: Trial) -> Any:
        """The parameter, asked for."""
        low, high = self.ends
        log = bool(self.log)
        step: Any = self.step
        if isinstance(low, int) and isinstance(high, int) and not isinstance(step, float):
            return trial.suggest_int(self.param, low, high, step=step or 1, log=log)
        return trial.suggest_float(self.param, low, high, step=step, log=log)

    def settings(self, param: float) -> dict[str, Any]:
        """What the parameter sets: numbers of four digits, which are what is trained."""
        low, high = self.ends
        value = param
        if self.powers_of:
            value = self.powers_of**param
        elif not isinstance(param, int):
            value = min(max(_rounded(param, 10 if self.step else 4), low), high)
        if self.log == COMPLEMENT:
            value = _rounded(1 - value, 10)
        return dict.fromkeys(self.sets, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Hyperparameter):
    """One whose values are listed."""

    choices: dict[str, dict[str, Any]]  # what each sets, by its label

    @property
    def ends(self) -> list[str]:
        """All labels."""
        return list(self.choices)

    @property
    def sets(self) -> Sequence[str]:
        """The settings of all choices."""
        return [key for each in self.choices.values() for key in each]

    @property
    def described(self) -> tuple[str, str]:
        """The labels; choices have no scale."""
        return ", ".join(self.choices), ""

    def suggest(self, trial: Trial) -> Any:
        """The label, asked for."""
        return trial.suggest_categorical(self.name, self.ends)

    def settings(self, param: str) -> dict[str, Any]:
        """What the choice sets."""
        return self.choices[param]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The hyperparameters of a study, in the order in which they are chosen."""

    name: str
    file: str  # in messages
    content: dict[str, Any]  # as read, with what the file builds on: values of JSON
    hyperparameters: Sequence[Number | Choice]

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """Asks for each hyperparameter whose condition holds: parameters by Optuna's names."""
        return self._params(lambda each: each.suggest(trial))

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """What the parameters set, as it is typed: `agent.gamma=0.99`."""
        asked = [each for each in self.hyperparameters if each.param in params]
        found = [item for each in asked for item in each.settings(params[each.param]).items()]
        return [
            setting(key, value) if isinstance(value, str) else f"{key}={shown(value)}"
            for key, value in found
        ]

    def without(self, typed: Sequence[str]) -> Space:
        """The space beside what is typed for every run.

        A hyperparameter of which a setting is typed is not searched, whatever else it sets: its
        values belong together. What depends on it is searched on if the typed value is one that
        its condition allows.
        """
        values = {str(each.key_or_group): shown(each.value()) for each in parsed(typed)}
        left: dict[str, Number | Choice] = {}
        for each in self.hyperparameters:
            when = {name: labels for name, labels in each.when.items() if name in left}
            decided = each.when.keys() - when.keys()
            met = all(values.get(name) in each.when[name] for name in decided)
            if met and not values.keys() & {*each.sets}:
                left[each.name] = replace(each, when=when)
        if not left:
            raise ConfigError(f"{self.file}: all of it is typed, nothing is left to search")
        return replace(self, hyperparameters=[*left.values()])

    def described(self) -> list[tuple[str, str, str, str, str]]:
        """Of each hyperparameter name, range, scale, unit and condition, in words."""
        return [
            (each.name, *each.described, each.unit, _when(each)) for each in self.hyperparameters
        ]

    def tried(self) -> list[dict[str, Any]]:
        """Few sets of parameters, among which is each end of each range and each choice."""
        chance, seen, found = random.Random(0), set[tuple[str, Any]](), []
        for _ in range(DRAWS):
            params = self._params(lambda each: chance.choice(each.ends))
            if not params.items() <= seen:
                found.append(params)
                seen |= params.items()
        for each in self.hyperparameters:
            if (each.param, each.ends[0]) not in seen:
                raise ConfigError(f"{self.file}: {each.name}: when {_when(each)} never holds")
        return found

    def _params(self, param_of: Callable[[Number | Choice], Any]) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for each in self.hyperparameters:
            if all(params.get(name) in labels for name, labels in each.when.items()):
                params[each.param] = param_of(each)
        return params


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _when(of: Hyperparameter) -> str:
    return " and ".join(f"{name} = {' or '.join(labels)}" for name, labels in of.when.items())


def read_space(files: Files, name: str) -> Space:
    """The space of conf/search/<name>.yaml, in the folders of the user, of plug-ins or ours."""
    with explained(files, "config", ()):
        entries = _entries(files, name, ())
        return space_of(name, {"hyperparameters": entries}, _place(files, name))


def _place(files: Files, name: str) -> str:
    file = files.file(f"{SEARCH}/{name}")
    return str(shortest(file)) if file else name


def _entries(files: Files, name: str, above: Sequence[str]) -> dict[str, Any]:
    """The entries of a file and of those that it builds on."""
    found, place = files.read(f"{SEARCH}/{name}"), _place(files, name)
    if found is None or name in above:
        raise ConfigError(unknown("search space", name, {*files.options(SEARCH)} - {*above}))
    content = OmegaConf.to_container(found.config, resolve=False)
    content = _mapping(place, content, ("defaults", "hyperparameters"))
    entries: dict[str, Any] = {}
    for base in content.get("defaults") or []:
        entries |= _entries(files, base, (*above, name))
    own = _mapping(f"{place}: hyperparameters", content.get("hyperparameters") or {})
    for key in own:
        if own[key] is None and key not in entries:
            raise ConfigError(f"{place}: {unknown('hyperparameter', key, entries)}")
    return {key: entry for key, entry in {**entries, **own}.items() if entry is not None}


def space_of(name: str, content: Mapping[str, Any], file: str) -> Space:
    """The space of what `Space.content` keeps; refusals name the file."""
    plain = json.loads(json.dumps(content))  # labels such as true and 1 become texts
    found: list[Number | Choice] = []
    for key, entry in plain["hyperparameters"].items():
        found.append(_hyperparameter(f"{file}: {key}", key, entry, found))
    if not found:
        raise ConfigError(f"{file}: there are no hyperparameters")
    return Space(name=name, file=file, content=plain, hyperparameters=found)


def _mapping(place: str, value: Any, known: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place} must be a mapping, got {value!r}")
    for word in value:
        if known and word not in known:
            raise ConfigError(f"{place}: {unknown('key', word, known)}")
    return value


def _hyperparameter(
    place: str, name: str, entry: Any, earlier: Sequence[Number | Choice]
) -> Number | Choice:
    choices: Any = _mapping(place, entry).get("choices")
    words: Sequence[str] = OF_POWERS if "powers_of" in entry else OF_NUMBERS
    if "choices" in entry:
        words = OF_LABELS if isinstance(choices, dict) else OF_CHOICES
    given = {"sets": [name], "when": {}, "unit": ""} | _mapping(place, entry, words)
    known = {each.name: each.ends for each in earlier if isinstance(each, Choice)}
    when = _conditions(f"{place}: when", given["when"], known)
    problem = _of_choices(given) if "choices" in entry else _of_numbers(given)
    if problem:
        raise ConfigError(f"{place}: {problem}, got {shown(entry)}")
    if "choices" not in entry:
        return Number(name=name, **{**given, "when": when})
    if isinstance(choices, list):
        choices = {shown(each): dict.fromkeys(given["sets"], each) for each in choices}
    return Choice(name=name, choices=choices, when=when, unit=given["unit"])


def _conditions(place: str, when: Any, known: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    found = {}
    for name, values in _mapping(place, when).items():
        if name not in known:
            raise ConfigError(f"{place}: {unknown('earlier choice', name, known)}")
        found[name] = [shown(each) for each in (values if isinstance(values, list) else [values])]
        for label in found[name]:
            if label not in known[name]:
                raise ConfigError(f"{place}: {unknown(name, label, known[name])}")
    return found


def _of_choices(given: Mapping[str, Any]) -> str:
    choices = given["choices"]
    if not choices or not isinstance(choices, list | dict):
        return "choices must be a list of values, or a mapping of labels to settings"
    if isinstance(choices, dict) and not all(isinstance(each, dict) for each in choices.values()):
        return "each label must have a mapping of settings"
    return "" if isinstance(given["sets"], list) else "sets must be a list of settings"


def _of_numbers(given: Mapping[str, Any]) -> str:
    low, high, step, base = (given.get(word, 2) for word in ("low", "high", "step", "powers_of"))
    log = given.get("log", False)
    if "low" not in given or "high" not in given or not isinstance(given["sets"], list):
        return "low and high, or choices, must be there, and sets, if there, be a list"
    if any(type(each) not in (int, float) for each in (low, high, step, base)):
        return "low, high, step and powers_of must be numbers"
    if not low < high:
        return "low must be below high"
    if log not in (False, True, COMPLEMENT) or (log and "step" in given):
        return f"log must be true or {COMPLEMENT}, without step"
    if ((log is True or "powers_of" in given) and low <= 0) or (log == COMPLEMENT and high >= 1):
        return f"low must be above 0 on a log scale, and high below 1 with log: {COMPLEMENT}"
    if step <= 0 or base <= 1:
        return "step must be above 0, and powers_of above 1"
    steps = [(high - low) / step] if "step" in given else []
    steps += [math.log(each, base) for each in (low, high)] if "powers_of" in given else []
    if not all(math.isclose(each, round(each), abs_tol=1e-9) for each in steps):
        return "high must be a number of steps above low, and both be powers of powers_of"
    return ""


def check_space(composer: Composer, space: Space, fixed: Sequence[str]) -> None:
    """Refuses, with file and hyperparameter, what the jobs of a study would be refused for: both
    ends of every range and every choice are composed beside what is fixed."""
    jobs = [space.overrides(params) for params in space.tried()]
    for overrides in jobs:
        keys = [each.partition("=")[0] for each in overrides]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise ConfigError(f"{space.file}: {twice[0]} is set by two hyperparameters at once")
    terms, refused = sweep_terms(composer, fixed), dict[int, ConfigError]()
    jobs_of(composer, [[*fixed, *each] for each in ([], *jobs)], terms, refused=refused)
    for number, error in refused.items():
        if number == 0:  # without anything of the space
            raise error
        named = {key: each for each in space.hyperparameters for key in each.sets}
        found = sorted((str(error).find(key), -len(key), key) for key in named if key in str(error))
        owner = f"{named[found[0][2]].name}: " if found else ""
        raise ConfigError(f"{space.file}: {owner}{error}") from error
