"""What one job of the command line is told besides its RunConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from border_cli.config.resuming import Continuation


class Source(NamedTuple):
    """Which file a choice came from."""

    group: str
    choice: str
    file: str
    of_agent: bool = False  # a tuned file that belongs to the agent, not to a pair


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Where a job writes, how it was asked for, and what its settings were read from."""

    run_dir: Path  # absolute; exists
    overrides: list[str]  # of this job, as typed
    sources: list[Source]  # for the header of the run
    resolved: str  # the text of `.hydra/resolved.yaml`, see `saved.write_resolved`
    command: list[str]  # as typed
    job_number: int | None  # None outside sweeps
    import_paths: list[str]  # where the modules of the run were found, see `imports.homes`
    continuation: Continuation | None = None  # None: nothing that could go on was found beforehand
    # What Hydra was told of this attempt, as file and text, where the folder was used before.
    record: Mapping[str, str] = field(default_factory=dict)
