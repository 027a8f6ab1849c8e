"""Settings that know their meaning and their range, so that help, checks and errors agree."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, NoReturn

from border_cli.errors import ConfigError, UnknownSetting
from border_cli.settings.schedule import SCHEDULE_KEYS, Kind
from border_cli.words import did_you_mean, nearest, unknown


@dataclass(frozen=True, slots=True)
class Range:
    """Which finite numbers a setting may be; for a list, which each of its entries may be."""

    low: float | None = None  # allowed itself
    above: float | None = None  # not allowed itself
    high: float | None = None  # allowed itself

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
            and abs(value) <= LARGEST
        )

    def __str__(self) -> str:
        bounds = {"at least": self.low, "above": self.above, "at most": self.high}
        return " and ".join(f"{name} {at:g}" for name, at in bounds.items() if at is not None)


ANY_NUMBER = Range()
LARGEST = 2**63 - 1  # number of a setting: counters and arrays hold no larger integer
LONGEST_WAIT_S = 1e6  # operating systems wait for at most 24 days
OR_SCHEDULE = f" or a schedule {{{', '.join(SCHEDULE_KEYS)}}}"
OF_ONE_COMMAND = ("run_dir", "resume", "dry_run")  # settings that do not define a run


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    takes_memory: bool = False,
    choices: Callable[[], Sequence[str]] | None = None,
    counter: str | None = None,
    nullable: bool = False,
    may_change: bool = False,
    may_grow: bool = False,
    may_become_null: bool = False,
) -> Any:
    """A dataclass field with its meaning, unit and range; `takes_memory` where memory grows with
    it, so that a refusal for want of memory names it. `choices` gives the allowed names where they
    are not known before modules of users are imported. `counter` is what a schedule in the place
    of the number follows; such a field is of type Any, and null only if `nullable`. A run resumes
    with any other value if `may_change`, with more entries if `may_grow`, and with null if
    `may_become_null`, because it is then found anew."""
    metadata = {
        "meaning": meaning,
        "range": Range(low=low, above=above, high=high),
        "takes_memory": takes_memory,
        "choices": choices,
        "counter": counter,
        "nullable": nullable,
        "may_change": may_change,
        "may_grow": may_grow,
        "may_become_null": may_become_null,
    }
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def unknown_setting(path: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """The refusal of an unknown key: settings of that name `elsewhere`, else the one that another
    library calls so, else the nearest one, and all that exist there."""
    from border_cli.settings.other_words import SETTINGS  # imported late: for refusals alone

    parent, _, key = path.rpartition(".")
    near = nearest(key, known)
    similar = elsewhere or ([f"{parent}.{near}".lstrip(".")] if near else [])
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    if not elsewhere and key in SETTINGS:
        hint = f": here it is {SETTINGS[key]}"
    there = ", ".join(known) or "no settings"
    return f"unknown setting {path!r}{hint} ({parent or 'a run'} has {there})"


def default_of(kind: type[Any], name: str) -> object:
    """The default that the dataclass itself has; MISSING where it has none."""
    field = kind.__dataclass_fields__[name]
    return field.default_factory() if field.default_factory is not MISSING else field.default


@dataclass(kw_only=True)
class Settings:
    """Base of all settings. Errors name a setting by the path that a user types.

    A number outside its range is refused at construction, and so are NaN and the infinities: null
    switches a limit off. Assigning an attribute that is no setting raises `UnknownSetting`. A value
    that is assigned later is checked when a run starts (`config.check.checked`).
    """

    path: ClassVar[str] = ""
    may_change: ClassVar[bool] = False  # all of these settings, when a run is resumed

    def __setattr__(self, name: str, value: object) -> None:
        declared = name in self.__dataclass_fields__ or hasattr(type(self), name)
        if not declared and not name.startswith("_"):
            path = f"{self.path}.{name}".lstrip(".")
            raise UnknownSetting(unknown_setting(path, [each.name for each in fields(self)]))
        super().__setattr__(name, value)

    def __init_subclass__(cls, path: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if path is not None:
            cls.path = path

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            bounds = each.metadata.get("range", ANY_NUMBER)
            if each.metadata.get("counter") and not (value is None and each.metadata["nullable"]):
                if isinstance(value, Mapping):
                    value = self._scheduled(each.name, value, bounds)
                else:
                    value = self._number(each.name, value, OR_SCHEDULE)
                setattr(self, each.name, value)
            self._check(each.name, value, bounds)
            choices = each.metadata.get("choices")
            if choices is not None:
                self._check_choice(
                    each.name, value, choices(), " (`imports` lists modules that register more)"
                )

    @property
    def schedules(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """The settings that are schedules, by name, each with the counter that it follows."""
        return {
            each.name: (each.metadata["counter"], value)
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), Mapping)
            and each.metadata.get("counter")
        }

    def _check(self, name: str, value: object, bounds: Range) -> None:
        entries: Sequence[object] = value if isinstance(value, list) else [value]
        for entry in entries:
            if isinstance(entry, int | float) and entry not in bounds:
                where = " in each entry" if isinstance(value, list) else ""
                self.refuse(name, value, f"must be {str(bounds) or 'a finite number'}{where}")

    def _scheduled(self, name: str, value: Mapping[str, Any], bounds: Range) -> dict[str, Any]:
        """A schedule with all its keys; without an end, it changes keys of the default. The limit
        that a number must stay above may be the final value, which a schedule only comes to."""
        default = default_of(type(self), name)
        if isinstance(default, Mapping) and not {"initial", "final"} <= value.keys():
            value = {**default, **value}
        given = {"kind": Kind.linear, "steps": None, **value}
        kind, steps = given["kind"], given["steps"]
        if isinstance(steps, float) and steps.is_integer():  # 1e5
            given["steps"] = steps = int(steps)
        for key in given:
            if key not in SCHEDULE_KEYS:
                raise ConfigError(unknown(f"{self.path}.{name} key", key, SCHEDULE_KEYS))
        self._check_choice(f"{name}.kind", kind, list(Kind))
        if steps is not None and (type(steps) is not int or steps < 1):
            self.refuse(f"{name}.steps", steps, "must be a whole number of at least 1, or null")
        closed = bounds if bounds.above is None else Range(low=bounds.above, high=bounds.high)
        for key, allowed in (("initial", bounds), ("final", closed)):
            number = self._number(f"{name}.{key}", given.get(key))
            self._check(f"{name}.{key}", number, allowed)
            if kind == Kind.exponential and number <= 0:
                self.refuse(
                    f"{name}.{key}",
                    number,
                    "must be above 0 with kind=exponential, which never comes to 0",
                )
            given[key] = number
        return {key: given[key] for key in SCHEDULE_KEYS} | {"kind": str(kind)}

    def _number(self, name: str, value: Any, alternative: str = "") -> float:
        """The value as OmegaConf reads one of type float."""
        try:
            return float("true or false" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            self.refuse(name, value, f"must be a number{alternative}")

    def _check_choice(
        self, name: str, value: object, choices: Sequence[str], more: str = ""
    ) -> None:
        if value not in choices:
            raise ConfigError(
                f"{self.path}.{name} must be one of {', '.join(choices)}, got {value!r}"
                f"{did_you_mean(str(value), choices)}{more}"
            )

    def taking_memory(self) -> dict[str, Any]:
        """Settings that memory grows with, as they are typed; what is off or 1 cannot be less."""
        grows = self.marked("takes_memory")
        return {
            f"{self.path}.{name}": value
            for name, value in vars(self).items()
            if name in grows and value not in (None, 1)
        }

    @classmethod
    def marked(cls, mark: str) -> list[str]:
        """The settings that have `mark`, in this class or in one that it extends: a class that
        gives a setting another default does not repeat its marks."""
        bases = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
        return [each.name for base in bases for each in fields(base) if each.metadata.get(mark)]

    def refuse(self, name: str, value: object, allowed: str) -> NoReturn:
        """Raises the error of a setting that cannot be meant."""
        where = f"{self.path}.{name}".lstrip(".")
        got = "null" if value is None else repr(value)
        got = got if len(got) <= 200 else f"{got[:50]}…"
        raise ConfigError(f"{where} {allowed}, got {got}")

    def refuse_negative(self, name: str) -> None:
        """Raises ConfigError for an entry of a mapping that is no number of at least 0."""
        for key, amount in (getattr(self, name) or {}).items():
            if not isinstance(amount, int | float) or not 0 <= amount < math.inf:
                self.refuse(name, getattr(self, name), f"must have numbers of at least 0 ({key})")

    def refuse_beside(self, unused: Sequence[str], allowed: str) -> None:
        """Raises ConfigError for the first of these settings that is not at its default."""
        for name in unused:
            value = getattr(self, name)
            if value != default_of(type(self), name):
                self.refuse(name, value, allowed)


def flat(settings: object, prefix: str = "") -> dict[str, Any]:
    """Settings, or what a file of them holds, by dotted names: `{"agent.gamma": 0.99, …}`.

    The values are those of JSON; what JSON does not know becomes text.
    """
    if isinstance(settings, Settings):
        settings = {each.name: getattr(settings, each.name) for each in fields(settings)}
    if not isinstance(settings, Mapping) or (prefix and not settings):
        return {prefix: _plain(settings)}
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}.{name}" if prefix else str(name))
    return found


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)
