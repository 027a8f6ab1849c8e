"""Values and meanings of settings in words: for help, for refusals and for the settings page."""

from __future__ import annotations

import json
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from border_cli.registry import components
from border_cli.settings.base import Settings, default_of
from border_cli.settings.run import SECTIONS

if TYPE_CHECKING:
    from border_cli.config.job import Job

_PLAIN = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "null",
}
WIDTH = 94  # characters of a meaning in --help
_PLURAL = {int: "integers", float: "numbers", str: "texts"}


def expected(kind: type[Any], name: str) -> str:
    """Everything that `name` may be, its range among it."""
    bounds = bounds_of(kind, name)
    return values_of(kind, name) + (f" ({bounds})" if bounds else "")


def values_of(kind: type[Any], name: str) -> str:
    """The kind of value that `name` takes, or the names to choose from."""
    choices = _metadata(kind, name).get("choices")  # the names of what is registered
    known = list(choices()) if choices else []
    return f"one of {', '.join(known)}" if known else in_words(get_type_hints(kind)[name])


def bounds_of(kind: type[Any], name: str) -> str:
    """The range of a number, and what a schedule in its place follows; or nothing."""
    metadata = _metadata(kind, name)
    bounds, counter = str(metadata.get("range") or ""), metadata.get("counter")
    return f"{bounds}, or a schedule over {counter}" if counter else bounds


def meaning_of(kind: type[Any], name: str) -> str:
    """The meaning of a setting, in words."""
    return str(_metadata(kind, name).get("meaning", ""))


def _metadata(kind: type[Any], name: str) -> dict[str, Any]:
    return dict(kind.__dataclass_fields__[name].metadata)


def in_words(hint: Any) -> str:
    """`a number or null` for `float | None`."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        return " or ".join(map(in_words, inside))
    if _is_a(hint, Enum):
        return "one of " + ", ".join(each.name for each in hint)
    if kind is list:
        return f"a list of {_PLURAL.get(inside[0], 'values')}" if inside else "a list"
    if kind is dict:
        return "a mapping"
    if _is_a(hint, Settings):
        return f"settings of type {hint.__name__}"
    return _PLAIN.get(hint, "any value")


def _is_a(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind)


def settings_help(job: Job, overrides: Sequence[str]) -> str:
    """`agent=dqn --help`: every setting of the groups named on the command line, as set now.

    A value that a file or the command line has set shows the default of the schema too. Where no
    group is named (`seed=1 --help`), all are listed.
    """
    words = {each.lstrip("+~").partition("=")[0].partition(".")[0] for each in overrides}
    sections = {name: getattr(job.config, name) for name in SECTIONS}
    settings = {**components(job.config), **sections}
    named = {place: each for place, each in settings.items() if place.partition(".")[0] in words}
    return "\n\n".join(_block(place, each) for place, each in (named or settings).items()) + "\n"


def _block(place: str, settings: Settings) -> str:
    kind = type(settings)
    about = (kind.__doc__ or "").strip().splitlines()[0]
    option = getattr(settings, "option", None)  # sections and recorders have none
    lines = [f"{place}={option}  {about}" if option else f"{place}  {about}"]
    for each in fields(kind):
        if each.compare:  # else composing sets it
            lines += _setting(place, kind, each.name, getattr(settings, each.name))
    return "\n".join(lines)


def _setting(path: str, kind: type[Any], name: str, value: object) -> list[str]:
    text = shown(value)
    default = default_of(kind, name)
    if default is not MISSING and default != value:
        text += f"  (default {shown(default)})"
    allowed = bounds_of(kind, name) or values_of(kind, name)
    meaning = textwrap.wrap(f"{meaning_of(kind, name)} [{allowed}]", WIDTH)
    return [f"  {path}.{name}={text}", *(f"      {line}" for line in meaning)]


def shown(value: object) -> str:
    """A value as it is written in YAML; of settings their type."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {shown(each)}' for key, each in value.items())}}}"
    if isinstance(value, Enum):
        return value.name
    return type(value).__name__ if is_dataclass(value) else str(value)
