"""What a child process is told to be made of."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from border_cli.core.errors import RunFailed
from border_cli.core.foreign import close, closed


def dump(setting: str, imports: Sequence[str], parts: Any) -> bytes:
    """`parts`, for a child that must import these modules first: they register what parts name.

    The child imports nothing out of folders that are closed here. Raises RunFailed, which names
    the setting that asks for a child, where the parts cannot be pickled.
    """
    try:
        return pickle.dumps((closed(), list(imports), pickle.dumps(parts)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunFailed(
            f"{setting} needs parts that can be pickled, such as classes and functions at "
            f"module level: {error}"
        ) from error


def load(recipe: bytes) -> Any:
    """What `dump` was given, in the child."""
    folders, imports, parts = pickle.loads(recipe)
    close(folders)
    for module in imports:
        import_module(module)
    return pickle.loads(parts)
