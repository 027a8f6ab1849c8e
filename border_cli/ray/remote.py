"""In a process of a cluster: its CPUs, where it finds modules, why a Ray actor is gone, and what is
printed."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from border_cli.system.foreign import keep_written_folders_off_path
from border_cli.system.printed import take_printed

log = logging.getLogger(__name__)

# Of a message: the cause, without the ids that follow it.
DEAD = re.compile(r"actor is dead because (its .+?)\.(?:\s|$)")


def log_what_is_printed() -> None:
    """Ray prints warnings of its nodes, which would run into the panel: logged as DEBUG instead."""
    take_printed(lambda line: log.debug("%s", line.rstrip()))


def import_path() -> list[str]:
    """The folders in which this process finds modules."""
    return [str(Path(each).absolute()) for each in sys.path]


def add_import_path(folders: Sequence[str]) -> None:
    """In a process of Ray's: modules are found in these folders, too, where they are there. On
    another machine they are where they were installed, or have travelled."""
    keep_written_folders_off_path()  # Ray puts the current directory there
    sys.path += [each for each in folders if each not in sys.path]


def total_cpus() -> int:
    """The CPUs of the cluster that this process is connected to, as Ray counts them."""
    import ray

    resources: Any = ray.cluster_resources  # which has no types
    return max(1, int(resources().get("CPU", 1)))


def why(error: Exception) -> str:
    """The cause of the end of a Ray actor, or of a call, in one line without Ray's ids."""
    cause = getattr(error, "cause", None)  # what was raised there
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    lines = [each for each in str(error).splitlines() if each and not each.startswith("\t")]
    text = " ".join(each.strip() for each in lines)
    dead = DEAD.search(text)
    return dead.group(1) if dead else text
