"""Of the cluster that this process is connected to: its CPUs, and why a Ray actor is gone."""

from __future__ import annotations

import re
from typing import Any

# Of a message: the cause, without the ids that follow it.
DEAD = re.compile(r"actor is dead because (its .+?)\.(?:\s|$)")


def total_cpus() -> int:
    """The CPUs of the cluster that this process is connected to, as Ray counts them."""
    import ray

    resources: Any = ray.cluster_resources  # which has no types
    return max(1, int(resources().get("CPU", 1)))


def why(error: Exception) -> str:
    """What ended a Ray actor, or a call of it, in one line without Ray's ids."""
    cause = getattr(error, "cause", None)  # what was raised there
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    lines = [each for each in str(error).splitlines() if each and not each.startswith("\t")]
    text = " ".join(each.strip() for each in lines)
    dead = DEAD.search(text)
    return dead.group(1) if dead else text
