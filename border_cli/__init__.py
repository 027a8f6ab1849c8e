"""Asynchronous reinforcement learning from the shell.

`__all__` lists the Python interface. Names are imported on first use, so that the command line can
respond before torch is loaded.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from border_cli.analysis.load import load_runs
    from border_cli.api import Result, resume, train
    from border_cli.config.compose import compose
    from border_cli.core.callback import Callback
    from border_cli.export.load import load_policy
    from border_cli.settings.run import RunConfig

__version__ = "0.2.0"
__all__ = [
    "Callback",
    "Result",
    "RunConfig",
    "__version__",
    "compose",
    "load_policy",
    "load_runs",
    "resume",
    "train",
]

_HOMES = {
    "Callback": "border_cli.core.callback",
    "compose": "border_cli.config.compose",
    "train": "border_cli.api",
    "resume": "border_cli.api",
    "load_policy": "border_cli.export.load",
    "Result": "border_cli.api",
    "load_runs": "border_cli.analysis.load",
    "RunConfig": "border_cli.settings.run",
}

NO_WINDOWS = "border_cli runs on Linux and macOS. On Windows use it inside WSL"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform == "win32" and name != "load_policy":  # exported policies need numpy alone
        raise ImportError(NO_WINDOWS)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
