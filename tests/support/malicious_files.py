"""What an attacker would put into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Malicious:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
