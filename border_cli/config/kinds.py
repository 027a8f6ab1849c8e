"""What values a setting takes, in words: for help and for refusals."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from border_cli.core.settings import Settings

_PLAIN = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "null",
}


def expected(kind: type[Any], name: str) -> str:
    """Everything that `name` may be, its range among it."""
    bounds = bounds_of(kind, name)
    return in_words(get_type_hints(kind)[name]) + (f" ({bounds})" if bounds else "")


def bounds_of(kind: type[Any], name: str) -> str:
    """The range of a number, or nothing."""
    return str(_metadata(kind, name).get("range") or "")


def meaning_of(kind: type[Any], name: str) -> str:
    """What a setting is for."""
    return str(_metadata(kind, name).get("meaning", ""))


def _metadata(kind: type[Any], name: str) -> dict[str, Any]:
    return dict(next(each for each in fields(kind) if each.name == name).metadata)


def default_of(kind: type[Any], name: str) -> object:
    """The default that the dataclass itself has; MISSING where it has none."""
    field = next(each for each in fields(kind) if each.name == name)
    return field.default_factory() if field.default_factory is not MISSING else field.default


def in_words(hint: Any) -> str:
    """`a number or null` for `float | None`."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(in_words(each) for each in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(each.name for each in hint)
    if get_origin(hint) is list or hint is list:
        entries = get_args(hint)
        return f"a list of {_plural(entries[0])}" if entries else "a list"
    if get_origin(hint) is dict or hint is dict:
        values = get_args(hint)[1:]
        named = [each.__name__ for each in values if _is_settings(each)]
        return f"a mapping of names to {named[0]}" if named else "a mapping"
    if _is_settings(hint):
        return f"settings of type {hint.__name__}"
    return _PLAIN.get(hint, "any value")


def _is_settings(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Settings)


def _plural(hint: Any) -> str:
    return {int: "integers", float: "numbers", str: "texts"}.get(hint, "values")
