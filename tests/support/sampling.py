"""Matrices of cases of which a fixed part runs by default, and all of them with `-m slow`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


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
