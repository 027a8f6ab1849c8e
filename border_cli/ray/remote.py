"""Functions for processes connected to Ray: module paths, CPUs, errors and printed lines."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from border_cli.system.foreign import keep_written_folders_off_path
from border_cli.system.printed import forward_output

log = logging.getLogger(__name__)

# Matches the reason in one of Ray's messages, without the ids that follow it.
DEAD = re.compile(r"actor is dead because (its .+?)\.(?:\s|$)")


def log_printed_lines() -> None:
    """Logs printed lines as DEBUG. Otherwise Ray's warnings would be printed over the panel."""
    forward_output(lambda line: log.debug("%s", line.rstrip()))


def import_path() -> list[str]:
    """Returns the module search path of this process, as absolute paths."""
    return [str(Path(folder).absolute()) for folder in sys.path]


def add_import_path(folders: Sequence[str]) -> None:
    """Adds folders to the module search path of a Ray process. On other machines they may not
    exist; modules are then found where they were installed or sent."""
    keep_written_folders_off_path()  # Ray adds the current directory
    sys.path += [folder for folder in folders if folder not in sys.path]


def total_cpus() -> int:
    """Returns the number of CPUs of the connected cluster, as counted by Ray."""
    import ray

    resources: Any = ray.cluster_resources  # has no type annotations
    return max(1, int(resources().get("CPU", 1)))


def describe_error(error: Exception) -> str:
    """Returns why a Ray actor died or a call failed, in one line without Ray's ids."""
    cause = getattr(error, "cause", None)  # the exception raised in the remote process
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    lines = [line for line in str(error).splitlines() if line and not line.startswith("\t")]
    text = " ".join(line.strip() for line in lines)
    match = DEAD.search(text)
    return match.group(1) if match else text
