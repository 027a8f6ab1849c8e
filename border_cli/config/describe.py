"""Descriptions of settings and their values, for help, error messages and the settings page."""

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
WIDTH = 94  # characters per line of a description in --help
_PLURAL = {int: "integers", float: "numbers", str: "texts"}


def expected(kind: type[Any], name: str) -> str:
    """Describes the values that the setting `name` accepts, including the range."""
    bounds = bounds_of(kind, name)
    return values_of(kind, name) + (f" ({bounds})" if bounds else "")


def values_of(kind: type[Any], name: str) -> str:
    """Describes the type of the setting `name`, or lists the names to choose from."""
    choices = _metadata(kind, name).get("choices")  # function that returns registered names
    names = list(choices()) if choices else []
    return f"one of {', '.join(names)}" if names else in_words(get_type_hints(kind)[name])


def bounds_of(kind: type[Any], name: str) -> str:
    """Describes the range of a number and, if it may be a schedule, the counter; may be empty."""
    metadata = _metadata(kind, name)
    bounds, counter = str(metadata.get("range") or ""), metadata.get("counter")
    return f"{bounds}, or a schedule over {counter}" if counter else bounds


def meaning_of(kind: type[Any], name: str) -> str:
    """Returns the description of a setting."""
    return str(_metadata(kind, name).get("meaning", ""))


def _metadata(kind: type[Any], name: str) -> dict[str, Any]:
    return dict(kind.__dataclass_fields__[name].metadata)


def in_words(hint: Any) -> str:
    """Describes a type hint: `a number or null` for `float | None`."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        return " or ".join(map(in_words, inside))
    if _is_a(hint, Enum):
        return "one of " + ", ".join(member.name for member in hint)
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
    """Returns the text of `agent=dqn --help`: the settings of the groups named in the overrides.

    A value that differs from the default of its schema is followed by that default. If no group is
    named (`seed=1 --help`), all groups are listed.
    """
    groups = {text.lstrip("+~").partition("=")[0].partition(".")[0] for text in overrides}
    sections = {name: getattr(job.config, name) for name in SECTIONS}
    settings = {**components(job.config), **sections}
    chosen = {path: part for path, part in settings.items() if path.partition(".")[0] in groups}
    return (
        "\n\n".join(_show_group(path, part) for path, part in (chosen or settings).items()) + "\n"
    )


def _show_group(path: str, settings: Settings) -> str:
    kind = type(settings)
    about = (kind.__doc__ or "").strip().splitlines()[0]
    option = getattr(settings, "option", None)  # sections and recorders have no option
    lines = [f"{path}={option}  {about}" if option else f"{path}  {about}"]
    for item in fields(kind):
        if item.compare:  # the other fields are set by the composition
            lines += _show_setting(path, kind, item.name, getattr(settings, item.name))
    return "\n".join(lines)


def _show_setting(path: str, kind: type[Any], name: str, value: object) -> list[str]:
    text = format_setting(value)
    default = default_of(kind, name)
    if default is not MISSING and default != value:
        text += f"  (default {format_setting(default)})"
    allowed = bounds_of(kind, name) or values_of(kind, name)
    meaning = textwrap.wrap(f"{meaning_of(kind, name)} [{allowed}]", WIDTH)
    return [f"  {path}.{name}={text}", *(f"      {line}" for line in meaning)]


def format_setting(value: object) -> str:
    """Formats a value as in YAML; settings are shown as the name of their type."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(format_setting, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_setting(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, Enum):
        return value.name
    return type(value).__name__ if is_dataclass(value) else str(value)
