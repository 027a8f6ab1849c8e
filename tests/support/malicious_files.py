"""An object that runs code when it is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
