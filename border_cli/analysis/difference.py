"""The differences between two runs: settings, versions, commit, machine and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.analysis.listing import Row

RESULTS = ("status", "reason", "best", "last", "opt_steps", "env_steps", "duration")

Differing = dict[str, tuple[Any, Any]]  # the values of both by key; None where a run has none


def differences(first: Row, second: Row) -> dict[str, Differing]:
    """The differences by the kind of fact, in the order of interest."""
    ours, theirs = _facts(first), _facts(second)
    return {kind: _differing(ours[kind], theirs[kind]) for kind in ours}


def _facts(row: Row) -> dict[str, Mapping[str, Any]]:
    facts = row.run.facts
    return {
        "settings": row.run.labels,
        "versions": facts.get("versions") or {},
        "commit": facts.get("git") or {},
        "machine": facts.get("machine") or {},
        "results": {key: row.value(key) for key in RESULTS},
    }


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differing:
    pairs = {key: (first.get(key), second.get(key)) for key in [*first, *second]}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
