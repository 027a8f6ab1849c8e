"""A run that was asked for: its folder and its settings, composed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from border_cli.settings.run import RunConfig


class Source(NamedTuple):
    """Which file a choice came from."""

    group: str
    choice: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run that was asked for, from a shell, from Python or by a sweep."""

    folder: Path  # absolute: its run directory
    config: RunConfig
    overrides: tuple[str, ...] = ()  # without those of Hydra itself
    number: int | None = None  # within a sweep
    sources: tuple[Source, ...] = ()  # the files that took part, for its header
    record: Mapping[str, str] = field(default_factory=dict)  # what Hydra saves: files and texts
    command: tuple[str, ...] = ()  # as typed
    import_paths: tuple[str, ...] = ()  # where its modules were found, see `search_path.homes`
    trust: bool = False  # see `load_policy`

    @property
    def in_sweep(self) -> bool:
        """Whether it is one of several jobs of a command."""
        return self.number is not None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"job {self.number} ({' '.join(self.overrides)})" if self.in_sweep else "the run"
