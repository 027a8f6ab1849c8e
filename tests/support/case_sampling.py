"""Selections from matrices of test cases: a fixed part runs by default, more of them with
`-m slow`, and those that `pairwise` and `thinned` leave out only with `EVERY=1 pytest -m slow`.
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


def pairwise(cases: Sequence[Case]) -> list[Case]:
    """Returns a few of the cases that have together all pairs of values that any case has."""
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
    """Returns every `stride`-th case, with the first."""
    return [*cases[:: 1 if ALL else stride]]


def sampled(cases: Sequence[Any], *, every: int, ids: Iterable[str] = ()) -> list[ParameterSet]:
    """All cases; every `every`-th, with the first, runs by default, and the others are `slow`.

    Tuples of one length, above 1, are cases with several parameters.
    """
    names = [*ids] or [None] * len(cases)
    lengths = {len(case) if isinstance(case, tuple) else 1 for case in cases}
    if len(lengths) > 1 or lengths == {0}:
        cases = [(case,) for case in cases]
    return [
        _case(values, name, slow=index % every > 0)
        for index, (values, name) in enumerate(zip(cases, names, strict=True))
    ]


def chosen(cases: Mapping[str, Any] | Iterable[str], default: Container[str]) -> list[ParameterSet]:
    """All cases by name; those in `default` run by default, and the others are `slow`.

    Of a mapping the values are the parameters, of anything else the names.
    """
    values = cases if isinstance(cases, Mapping) else {name: name for name in cases}
    return [_case(value, name, slow=name not in default) for name, value in values.items()]


def _case(values: Any, name: str | None, *, slow: bool) -> ParameterSet:
    parameters = values if isinstance(values, tuple) else (values,)
    return pytest.param(*parameters, id=name, marks=pytest.mark.slow if slow else ())
