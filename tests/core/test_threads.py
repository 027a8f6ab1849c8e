"""How many threads compute: asked, not assumed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy  # noqa: F401 - loads the library that is asked
import pytest

from border_cli.core import threads
from border_cli.core.threads import BLAS_VARIABLES, available_cores, blas_threads

NO_LIMITS = {name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES}


def printed(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


ASKS = "from border_cli.core.threads import blas_threads; print(blas_threads())"


@pytest.mark.skipif(blas_threads() is None, reason="numpy's BLAS here does not say")
def test_the_library_tells_what_counted_when_it_was_loaded() -> None:
    assert printed(f"import numpy; {ASKS}", NO_LIMITS | {"OMP_NUM_THREADS": "1"}) == "1"


@pytest.mark.skipif(
    blas_threads() is None or available_cores() < 2, reason="needs a BLAS that says, and 2 cores"
)
def test_what_is_set_after_the_library_was_loaded_does_not_count() -> None:
    late = "import numpy, os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; "
    assert int(printed(late + ASKS, NO_LIMITS)) >= 2


def test_without_a_blas_nothing_is_said() -> None:
    assert printed(ASKS, NO_LIMITS) == "None"


def test_numpys_own_library_comes_first_and_a_missing_list_is_no_error(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    start = "7f00-7f01 r-xp 00000000 08:01 42 "
    maps.write_text(
        f"{start}/lib/a folder/libopenblas.so\n"
        f"{start}/lib/numpy.libs/libscipy_openblas64_-32a4.so\n"
        f"{start}/lib/numpy.libs/libscipy_openblas64_-32a4.so\n"
        f"{start}/lib/libc.so\n7f02-7f03 rw-p 00000000 00:00 0\n"
        "7f04-7f05 rw-p 00000000 00:00 0 [stack]\n"
    )
    assert threads._loaded_blas(maps) == [
        "/lib/numpy.libs/libscipy_openblas64_-32a4.so",
        "/lib/a folder/libopenblas.so",
    ]
    assert threads._loaded_blas(tmp_path / "none") == []
