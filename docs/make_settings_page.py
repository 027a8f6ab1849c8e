"""Writes settings.md: every setting of everything that ships, from the settings themselves.

python docs/make_settings_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from border_cli.config.kinds import bounds_of, default_of, in_words, meaning_of
from border_cli.core.config import CheckpointConfig, RunConfig
from border_cli.registry import GROUPS, register_builtin

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Every setting

With the defaults of the schema; what `conf/` and its tuned files set deviates, and
`border-train GROUP=OPTION --help` shows both. Written by `python docs/make_settings_page.py`.
Units: a *sample* is one row of the replay buffer, an *env step* one action in one training
environment, an *opt step* one update on one batch.
"""


def page() -> str:
    """The whole page."""
    register_builtin()
    parts = [HEAD, _section("Of the run", "", RunConfig, _plain_names(RunConfig))]
    parts.append(_section("`checkpoint`", "checkpoint", CheckpointConfig, _names(CheckpointConfig)))
    for group, registry in GROUPS.items():
        base = _base(group)
        shared = _names(base)
        if shared:
            parts.append(_section(f"`{group}`, whatever is chosen", group, base, shared))
        for entry in registry:
            kind = entry.config_type
            own = [name for name in _names(kind) if name not in shared]
            path = f"recorder.{entry.name}" if group == "recorder" else group
            parts.append(_section(f"`{group}={entry.name}`", path, kind, own))
    return "\n".join(parts)


def _base(group: str) -> type[Any]:
    hint = get_type_hints(RunConfig)[group]
    base: type[Any] = get_args(hint)[1] if get_origin(hint) is dict else hint
    return base


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in fields(kind)]


def _plain_names(kind: type[Any]) -> list[str]:
    """Without the groups."""
    groups = {*GROUPS, "checkpoint"}
    return [name for name in _names(kind) if name not in groups]


def _section(title: str, path: str, kind: type[Any], names: list[str]) -> str:
    about = (kind.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {title}", "", about, ""]
    if names:
        lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
        lines += [_row(path, kind, name) for name in names]
        lines.append("")
    return "\n".join(lines)


def _row(path: str, kind: type[Any], name: str) -> str:
    full = f"{path}.{name}" if path else name
    allowed = "; ".join(_allowed(kind, name))
    meaning = meaning_of(kind, name) + (f" [{allowed}]" if allowed else "")
    default = default_of(kind, name)
    shown = "" if default is MISSING else _text(default)
    return f"| `{full}` | {shown} | {meaning.replace('|', chr(92) + '|')} |"


def _allowed(kind: type[Any], name: str) -> Iterator[str]:
    bounds = bounds_of(kind, name)
    if bounds:
        yield bounds
    words = in_words(get_type_hints(kind)[name])
    if "one of" in words:
        yield words


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str({None: "null", True: "true", False: "false"}[value])
    if isinstance(value, Enum):
        return value.name
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
