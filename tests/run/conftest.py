"""Fixtures for small runs that save checkpoints; stores are closed after each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_run import SmallRun

MakeRun = Callable[..., SmallRun]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    small_runs: list[SmallRun] = []

    def make(run_dir: Path = tmp_path, **settings: Any) -> SmallRun:
        small_runs.append(SmallRun(run_dir, **settings))
        return small_runs[-1]

    yield make
    for small_run in small_runs:
        small_run.store.close()


@pytest.fixture
def case(make_run: MakeRun) -> SmallRun:
    return make_run()


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run with checkpoints 10 and 20, and a best model at 10."""
    run_dir = tmp_path_factory.mktemp("saved")
    (run_dir / ".hydra").mkdir()
    (run_dir / ".hydra" / "resolved.yaml").touch()
    case = SmallRun(run_dir, prioritized=True)
    case.save_best(10, 1.5)
    case.save(10, push=30)
    case.save(20, push=20)
    case.store.close()
    return run_dir


@pytest.fixture
def run_dir(saved_run: Path, tmp_path: Path) -> Path:
    """Fresh copy of the saved run."""
    return Path(shutil.copytree(saved_run, tmp_path / "run", symlinks=True))
