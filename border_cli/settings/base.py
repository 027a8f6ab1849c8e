"""The base class of settings. Each field declares its meaning and range for help and checks."""

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
    """The range of finite numbers for a setting, or for the entries of a list."""

    low: float | None = None  # inclusive minimum
    above: float | None = None  # exclusive minimum
    high: float | None = None  # inclusive maximum

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
            and abs(value) <= LARGEST
        )

    def __str__(self) -> str:
        bounds = {"at least": self.low, "above": self.above, "at most": self.high}
        return " and ".join(
            f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None
        )


ANY_NUMBER = Range()
LARGEST = 2**63 - 1  # maximum magnitude: counters and arrays use 64-bit integers
LONGEST_WAIT_S = 1e6  # operating systems limit a wait to 24 days
OR_SCHEDULE = f" or a schedule {{{', '.join(SCHEDULE_KEYS)}}}"
OF_ONE_COMMAND = ("run_dir", "resume", "dry_run")  # settings of a command, not of its run


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
    """Returns a dataclass field with a meaning, unit and range.

    `takes_memory`: memory use grows with the value, so out-of-memory errors list the setting.
    `choices` returns the allowed names once the user's modules are imported. `counter`: a schedule
    over this counter is allowed; the field has type Any, and null is allowed only if `nullable`. A
    run can resume with any other value if `may_change`, with more entries if `may_grow`, and with
    null if `may_become_null`, because the value is then detected again."""
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
    """Returns the error message for an unknown setting, with the known ones and a suggestion: the
    same name `elsewhere`, else our name for a setting of another library, else the nearest name."""
    from border_cli.settings.other_libraries import SETTINGS  # imported late: only for errors

    parent, _, key = path.rpartition(".")
    near = nearest(key, known)
    similar = elsewhere or ([f"{parent}.{near}".lstrip(".")] if near else [])
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    if not elsewhere and key in SETTINGS:
        hint = f": here it is {SETTINGS[key]}"
    names = ", ".join(known) or "no settings"
    return f"unknown setting {path!r}{hint} ({parent or 'a run'} has {names})"


def default_of(kind: type[Any], name: str) -> object:
    """Returns the default of a dataclass field; MISSING if it has none."""
    field = kind.__dataclass_fields__[name]
    return field.default_factory() if field.default_factory is not MISSING else field.default


@dataclass(kw_only=True)
class Settings:
    """Base class of all settings. Errors name a setting by its path, as in an override.

    Numbers outside their range, NaN and infinities are refused at construction; null disables a
    limit. Assigning to an unknown attribute raises `UnknownSetting`. Values assigned later are
    checked when a run starts (`config.check.check_settings`).
    """

    path: ClassVar[str] = ""
    may_change: ClassVar[bool] = False  # whether a resumed run may change any of these settings

    def __setattr__(self, name: str, value: object) -> None:
        declared = name in self.__dataclass_fields__ or hasattr(type(self), name)
        if not declared and not name.startswith("_"):
            path = f"{self.path}.{name}".lstrip(".")
            raise UnknownSetting(unknown_setting(path, [item.name for item in fields(self)]))
        super().__setattr__(name, value)

    def __init_subclass__(cls, path: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if path is not None:
            cls.path = path

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            bounds = item.metadata.get("range", ANY_NUMBER)
            if item.metadata.get("counter") and not (value is None and item.metadata["nullable"]):
                if isinstance(value, Mapping):
                    value = self._complete_schedule(item.name, value, bounds)
                else:
                    value = self._to_number(item.name, value, OR_SCHEDULE)
                setattr(self, item.name, value)
            self._check(item.name, value, bounds)
            choices = item.metadata.get("choices")
            if choices is not None:
                self._check_choice(
                    item.name, value, choices(), " (`imports` lists modules that register more)"
                )

    @property
    def schedules(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """The settings that are schedules, by name, with the counter of each."""
        return {
            item.name: (item.metadata["counter"], value)
            for item in fields(self)
            if isinstance(value := getattr(self, item.name), Mapping)
            and item.metadata.get("counter")
        }

    def _check(self, name: str, value: object, bounds: Range) -> None:
        entries: Sequence[object] = value if isinstance(value, list) else [value]
        for entry in entries:
            if isinstance(entry, int | float) and entry not in bounds:
                where = " in each entry" if isinstance(value, list) else ""
                self.refuse(name, value, f"must be {str(bounds) or 'a finite number'}{where}")

    def _complete_schedule(
        self, name: str, value: Mapping[str, Any], bounds: Range
    ) -> dict[str, Any]:
        """Returns a schedule with all keys. If `initial` or `final` is missing, missing keys have
        the values of the default schedule. `final` may be equal to an exclusive minimum."""
        default = default_of(type(self), name)
        if isinstance(default, Mapping) and not {"initial", "final"} <= value.keys():
            value = {**default, **value}
        schedule = {"kind": Kind.linear, "steps": None, **value}
        kind, steps = schedule["kind"], schedule["steps"]
        if isinstance(steps, float) and steps.is_integer():  # such as 1e5
            schedule["steps"] = steps = int(steps)
        for key in schedule:
            if key not in SCHEDULE_KEYS:
                raise ConfigError(unknown(f"{self.path}.{name} key", key, SCHEDULE_KEYS))
        self._check_choice(f"{name}.kind", kind, list(Kind))
        if steps is not None and (type(steps) is not int or steps < 1):
            self.refuse(f"{name}.steps", steps, "must be a whole number of at least 1, or null")
        inclusive = bounds if bounds.above is None else Range(low=bounds.above, high=bounds.high)
        for key, allowed in (("initial", bounds), ("final", inclusive)):
            number = self._to_number(f"{name}.{key}", schedule.get(key))
            self._check(f"{name}.{key}", number, allowed)
            if kind == Kind.exponential and number <= 0:
                self.refuse(
                    f"{name}.{key}",
                    number,
                    "must be above 0 with kind=exponential, which never reaches 0",
                )
            schedule[key] = number
        return {key: schedule[key] for key in SCHEDULE_KEYS} | {"kind": str(kind)}

    def _to_number(self, name: str, value: Any, alternative: str = "") -> float:
        """Converts a value to float as OmegaConf does."""
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
        """Returns the settings that increase memory use, by path, unless they are null or 1."""
        names = self.marked("takes_memory")
        return {
            f"{self.path}.{name}": value
            for name, value in vars(self).items()
            if name in names and value not in (None, 1)
        }

    @classmethod
    def marked(cls, mark: str) -> list[str]:
        """Returns the settings marked with `mark` in this class or in a base class. Subclasses that
        change a default need not repeat the marks."""
        bases = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
        return [item.name for base in bases for item in fields(base) if item.metadata.get(mark)]

    def refuse(self, name: str, value: object, allowed: str) -> NoReturn:
        """Raises ConfigError with the path of a setting, what is allowed, and its value."""
        where = f"{self.path}.{name}".lstrip(".")
        got = "null" if value is None else repr(value)
        got = got if len(got) <= 200 else f"{got[:50]}…"
        raise ConfigError(f"{where} {allowed}, got {got}")

    def refuse_negative(self, name: str) -> None:
        """Raises ConfigError if an entry of a mapping is not a number of at least 0."""
        for key, amount in (getattr(self, name) or {}).items():
            if not isinstance(amount, int | float) or not 0 <= amount < math.inf:
                self.refuse(name, getattr(self, name), f"must have numbers of at least 0 ({key})")

    def refuse_beside(self, unused: Sequence[str], allowed: str) -> None:
        """Raises ConfigError if one of the `unused` settings differs from its default."""
        for name in unused:
            value = getattr(self, name)
            if value != default_of(type(self), name):
                self.refuse(name, value, allowed)


def flat(settings: object, prefix: str = "") -> dict[str, Any]:
    """Returns settings, or the content of a config file, by dotted name: `{"agent.gamma": 0.99}`.

    Values that JSON does not support are converted to strings.
    """
    if isinstance(settings, Settings):
        settings = {item.name: getattr(settings, item.name) for item in fields(settings)}
    if not isinstance(settings, Mapping) or (prefix and not settings):
        return {prefix: _plain(settings)}
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        flattened |= flat(value, f"{prefix}.{name}" if prefix else str(name))
    return flattened


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)
