"""What differs between two runs: settings, versions, commit, machine and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from border_cli.analysis.listing import Row

RESULTS = ("status", "reason", "best", "last", "opt_steps", "env_steps", "duration")


class Absent:
    """Stands for a value that one of two runs does not have."""


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of facts of two runs."""

    name: str
    differing: Mapping[str, tuple[Any, Any]]  # `ABSENT` where one run has no such value
    num_equal: int


def differences(first: Row, second: Row) -> list[Section]:
    """The kinds of facts in the order of interest, each with what differs.

    Raises `CheckpointError` where the settings of a run cannot be read.
    """
    assert first.run is not None
    assert second.run is not None
    facts = (first.run.facts, second.run.facts)
    return [
        _section("settings", first.run.settings, second.run.settings),
        _section("versions", *(_mapping(each.get("versions")) for each in facts)),
        _section("commit", *(_mapping(each.get("git")) for each in facts)),
        _section("machine", *(_mapping(each.get("machine")) for each in facts)),
        _section(
            "results", *({key: each.value(key) for key in RESULTS} for each in (first, second))
        ),
    ]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _section(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Section:
    keys = dict.fromkeys([*first, *second])
    pairs = {key: (first.get(key, ABSENT), second.get(key, ABSENT)) for key in keys}
    differing = {
        key: (before, after)
        for key, (before, after) in pairs.items()
        if type(before) is not type(after) or before != after
    }
    return Section(name, differing, len(pairs) - len(differing))
