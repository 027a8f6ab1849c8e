"""Settings that know their meaning and their range, so that help, checks and errors agree."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from border_cli.core.errors import ConfigError


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
            and is_finite(value)
        )

    def __str__(self) -> str:
        parts = []
        if self.low is not None:
            parts.append(f"at least {self.low:g}")
        if self.above is not None:
            parts.append(f"above {self.above:g}")
        if self.high is not None:
            parts.append(f"at most {self.high:g}")
        return " and ".join(parts)


ANY_NUMBER = Range()


def is_finite(value: float) -> bool:
    """Neither NaN nor an infinity; unlike `math.isfinite` for a whole number of any size."""
    return value == value and abs(value) != math.inf


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    takes_memory: bool = False,
) -> Any:
    """A dataclass field with its meaning, unit and range; `takes_memory` where memory grows with
    it, so that a refusal for want of memory names it."""
    bounds = Range(low=low, above=above, high=high)
    bounded = bounds != ANY_NUMBER
    metadata: dict[str, Any] = {"meaning": meaning, "range": bounds if bounded else None}
    if takes_memory:
        metadata["takes_memory"] = True
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class Settings:
    """Base of all settings. Refuses a number outside its range with the path that a user types.

    No setting may be NaN or an infinity: every limit that can be switched off is so by null.
    """

    path: ClassVar[str] = ""

    def __init_subclass__(cls, path: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if path is not None:
            cls.path = path

    def __post_init__(self) -> None:
        for each in fields(self):
            bounds = each.metadata.get("range") or ANY_NUMBER
            self._check(each.name, getattr(self, each.name), bounds)

    def _check(self, name: str, value: object, bounds: Range) -> None:
        entries: Sequence[object] = value if isinstance(value, list) else [value]
        for entry in entries:
            if not isinstance(entry, int | float) or entry in bounds:
                continue
            kind = "" if is_finite(entry) else "a finite number "
            where = " in each entry" if isinstance(value, list) else ""
            self.refuse(name, value, f"must be {kind}{bounds}".rstrip() + where)

    def taking_memory(self) -> dict[str, Any]:
        """What memory grows with, as it is typed; what is off or 1 cannot be less."""
        bases = [base for base in type(self).__mro__ if is_dataclass(base)]
        # Of all bases: who gives a setting another default does not repeat what it is.
        grows = {
            each.name
            for base in bases
            for each in fields(base)
            if each.metadata.get("takes_memory")
        }
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            f"{self.path}.{name}": value
            for name, value in values.items()
            if name in grows and value not in (None, 1)
        }

    def refuse(self, name: str, value: object, allowed: str) -> None:
        """Raises the error of a setting that cannot be meant."""
        where = f"{self.path}.{name}" if self.path else name
        raise ConfigError(f"{where} {allowed}, got {value!r}")
