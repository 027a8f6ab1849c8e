"""What a child process is told to be made of."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from border_cli.core.errors import RunFailed


def dump(setting: str, imports: Sequence[str], parts: Any) -> bytes:
    """`parts`, for a child that must import these modules first: they register what parts name.

    Raises RunFailed, which names the setting that asks for a child, where they cannot be pickled.
    """
    try:
        return pickle.dumps((list(imports), pickle.dumps(parts)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunFailed(
            f"{setting} needs parts that can be sent to another process, which holds for "
            f"classes and functions of a module only: {error}"
        ) from error


def load(recipe: bytes) -> Any:
    """What `dump` was given, in the child."""
    imports, parts = pickle.loads(recipe)
    for module in imports:
        import_module(module)
    return pickle.loads(parts)
