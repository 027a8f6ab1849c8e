"""Objects with views of shared memory, on their way into another process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class Mapped(ABC):
    """Crosses without its views, which are made anew. Picklable on the way into a child process
    only."""

    crossing: ClassVar[tuple[str, ...]]  # the attributes that cross

    @abstractmethod
    def _map(self) -> None:
        """Makes the views, from what crosses alone; a constructor calls it."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.crossing}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()
