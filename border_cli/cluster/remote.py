"""In a process that is connected to a cluster: its CPUs, why a Ray actor is gone, and what Ray
prints. Ray is imported by what asks it, as `connection.py` says."""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import Any

log = logging.getLogger(__name__)

# Of a message: the cause, without the ids that follow it.
DEAD = re.compile(r"actor is dead because (its .+?)\.(?:\s|$)")


def log_what_is_printed() -> None:
    """Ray prints warnings of its nodes, which would run into the panel: logged as DEBUG instead."""
    read_end, write_end = os.pipe()
    for stream in (1, 2):
        os.dup2(write_end, stream)
    os.close(write_end)

    def forward() -> None:
        with os.fdopen(read_end, errors="replace") as lines:
            for line in lines:
                log.debug("%s", line.rstrip())

    threading.Thread(target=forward, name="printed", daemon=True).start()


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
