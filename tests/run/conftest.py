"""Runs in miniature whose stores are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from saves import SmallRun

MakeRun = Callable[..., SmallRun]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    made: list[SmallRun] = []

    def make(run_dir: Path = tmp_path, **settings: Any) -> SmallRun:
        made.append(SmallRun(run_dir, **settings))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


@pytest.fixture
def case(make_run: MakeRun) -> SmallRun:
    return make_run()
