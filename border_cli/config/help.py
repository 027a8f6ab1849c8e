"""`border-train agent=dqn --help`: the settings of what was chosen."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints

from border_cli.config.compose import Job
from border_cli.config.kinds import bounds_of, default_of, in_words, meaning_of
from border_cli.registry import GROUPS

TOP = "run"


def settings_help(job: Job, overrides: Sequence[str]) -> str:
    """Every setting of the groups named on the command line, as it is set now.

    A value that a file or the line has set shows the default of the schema too. Where no group
    is named (`seed=1 --help`), all are listed.
    """
    named = [each.lstrip("+~").partition("=")[0].partition(".")[0] for each in overrides]
    groups = [group for group in GROUPS if group in named] or [*GROUPS, "checkpoint"]
    blocks = [_block(title, path, settings) for title, path, settings in _chosen(job, groups)]
    return "\n\n".join(blocks) + "\n"


def _chosen(job: Job, groups: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    choices = {source.group: source.choice for source in job.sources}
    for group in groups:
        settings = getattr(job.config, group)
        if isinstance(settings, dict):
            for name, member in settings.items():
                yield f"{group}=[{name}]", f"{group}.{name}", member
        else:
            yield f"{group}={choices[group]}" if group in choices else group, group, settings


def _block(title: str, path: str, settings: Any) -> str:
    kind = type(settings)
    about = (kind.__doc__ or "").strip().splitlines()[0]
    lines = [f"{title}  {about}"]
    for each in fields(kind):
        value = getattr(settings, each.name)
        lines += _setting(path, kind, each.name, value)
    return "\n".join(lines)


def _setting(path: str, kind: type[Any], name: str, value: object) -> list[str]:
    shown = _text(value)
    default = default_of(kind, name)
    if default is not MISSING and default != value:
        shown += f"  (default {_text(default)})"
    allowed = bounds_of(kind, name) or in_words(get_type_hints(kind)[name])
    width = min(shutil.get_terminal_size().columns, 110)
    meaning = textwrap.wrap(f"{meaning_of(kind, name)} [{allowed}]", max(width - 6, 40))
    return [f"  {path}.{name}={shown}", *(f"      {line}" for line in meaning)]


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return type(value).__name__
    return str(value)
