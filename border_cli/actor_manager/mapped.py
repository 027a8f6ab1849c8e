"""A base class for objects with views of shared memory that are sent to child processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class Mapped(ABC):
    """An object that is pickled without its views of shared memory and later recreates them.

    It can be pickled only when it is passed to a child process."""

    pickled: ClassVar[tuple[str, ...]]  # names of the attributes to pickle

    @abstractmethod
    def _map(self) -> None:
        """Creates the views from the pickled attributes. The constructor must call this."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.pickled}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()
