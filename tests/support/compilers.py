"""A marker for tests that need the C++ compiler of `torch.compile`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

COMPILER = os.environ.get("CXX", "g++")


def needs_compiler(test: Callable[..., Any]) -> Callable[..., Any]:
    """Skips the test if there is no C++ compiler, and ignores a deprecation warning in torch."""
    missing = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}")
    return pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")(missing(test))
