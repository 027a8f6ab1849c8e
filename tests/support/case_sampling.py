"""Selections from matrices of test cases.

A fixed subset runs by default and more cases with `-m slow`. All cases, and tests marked `weekly`,
run only with `EVERY=1 pytest -m slow`, and in the weekly run of the workflow.
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
MANY = 4  # slow cases of one matrix
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


def sampled(cases: Sequence[Any], *, every: int, ids: Iterable[str] = ()) -> list[ParameterSet]:
    """Returns cases; every `every`-th, starting with the first, runs by default.

    The others are marked `slow`; if they are many, only some are kept. If all cases are tuples of
    the same length, a tuple holds the parameters of one case.
    """
    names = [*ids] or [None] * len(cases)
    lengths = {len(case) if isinstance(case, tuple) else 1 for case in cases}
    if len(lengths) > 1 or lengths == {0}:
        cases = [(case,) for case in cases]
    return _limited(
        (values, name, index % every > 0)
        for index, (values, name) in enumerate(zip(cases, names, strict=True))
    )


def chosen(cases: Mapping[str, Any] | Iterable[str], default: Container[str]) -> list[ParameterSet]:
    """Returns cases with their names as ids; those not in `default` are marked `slow`; if these are
    many, only some are kept.

    The parameter is the value if `cases` is a mapping, else the name.
    """
    values = cases if isinstance(cases, Mapping) else {name: name for name in cases}
    return _limited((value, name, name not in default) for name, value in values.items())


def _limited(cases: Iterable[tuple[Any, str | None, bool]]) -> list[ParameterSet]:
    """Returns cases, given with their names and whether they are slow; of the slow ones, at most
    `MANY` at equal distances."""
    listed = [*cases]
    slow = [index for index, (_, _, is_slow) in enumerate(listed) if is_slow]
    kept = slow if ALL else slow[:: -(-len(slow) // MANY) or 1]
    return [
        pytest.param(
            *(values if isinstance(values, tuple) else (values,)),
            id=name,
            marks=pytest.mark.slow if is_slow else (),
        )
        for index, (values, name, is_slow) in enumerate(listed)
        if not is_slow or index in kept
    ]
