"""Differences between two runs: settings, versions, commit, machine and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.analysis.listing import Row

FACTS = {"settings": "settings", "versions": "versions", "commit": "git", "machine": "machine"}
RESULTS = ("status", "reason", "best", "last", "opt_steps", "env_steps", "duration")

Differing = dict[str, tuple[Any, Any]]  # key -> values of both runs; None for a missing value


def differences(first: Row, second: Row) -> dict[str, Differing]:
    """Returns the differences by category, the most interesting category first."""
    both = first, second
    by_category = {
        kind: _differing(*(row.run.facts.get(fact) or {} for row in both))
        for kind, fact in FACTS.items()
    }
    results = ({key: row.value(key) for key in RESULTS} for row in both)
    return {**by_category, "results": _differing(*results)}


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differing:
    return {
        key: (first.get(key), second.get(key))
        for key in [*first, *second]
        if first.get(key) != second.get(key)
    }
