"""Selections from matrices of test cases.

A fixed subset runs by default. All other cases, and tests marked `weekly`, run only with
`EVERY=1 pytest -m slow`, and in the weekly run of the workflow.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case", bound=tuple[Any, ...])
ALL = "EVERY" in os.environ
weekly = pytest.mark.skipif(not ALL, reason="only in the weekly run, or with EVERY=1")


def pairwise(cases: Sequence[Case]) -> list[Case]:
    """Returns a small subset that covers every pair of values that occurs in some case."""
    if ALL:
        return [*cases]
    new = {case: {*combinations(enumerate(case), 2)} for case in cases}
    selection = []
    while any(new.values()):
        selection.append(max(new, key=lambda case: len(new[case])))
        covered = new[selection[-1]]
        new = {case: pairs - covered for case, pairs in new.items()}
    return sorted(selection, key=cases.index)


def thinned(cases: Sequence[Any], stride: int) -> list[Any]:
    """Returns every `stride`-th case, starting with the first."""
    return [*cases[:: 1 if ALL else stride]]


def sampled(
    cases: Sequence[Any], *, every: int, ids: Iterable[str] = (), keep: bool = ALL
) -> list[ParameterSet]:
    """Returns cases; every `every`-th, starting with the first, runs by default.

    The others are left out, or marked `slow` with `keep` or `EVERY=1`. If all cases are tuples of
    the same length, a tuple holds the parameters of one case.
    """
    names = [*ids] or [None] * len(cases)
    lengths = {len(case) if isinstance(case, tuple) else 1 for case in cases}
    if len(lengths) > 1 or lengths == {0}:
        cases = [(case,) for case in cases]
    numbered = enumerate(zip(cases, names, strict=True))
    return _selected(((values, name, i % every > 0) for i, (values, name) in numbered), keep)


def chosen(cases: Mapping[str, Any] | Iterable[str], default: Container[str]) -> list[ParameterSet]:
    """Returns cases with their names as ids; those not in `default` are left out, and with
    `EVERY=1` marked `slow`.

    The parameter is the value if `cases` is a mapping, else the name.
    """
    values = cases if isinstance(cases, Mapping) else {name: name for name in cases}
    return _selected(((value, name, name not in default) for name, value in values.items()), ALL)


def _selected(cases: Iterable[tuple[Any, str | None, bool]], keep: bool) -> list[ParameterSet]:
    """Returns cases, given with their names and whether they are slow; without `keep`, leaves out
    the slow ones."""
    return [
        pytest.param(
            *(values if isinstance(values, tuple) else (values,)),
            id=name,
            marks=pytest.mark.slow if is_slow else (),
        )
        for values, name, is_slow in cases
        if keep or not is_slow
    ]
